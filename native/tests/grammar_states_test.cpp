// Our grammars, compared with llama.cpp's: the same tokens must be allowed at every position.

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "error.h"
#include "grammar/states_grammar.h"
#include "llama_grammar.h"
#include "test_session.h"
#include "token_piece.h"

namespace eliza::test {
namespace {

struct Vocab {
    llama_model_ptr model;
    std::shared_ptr<const GrammarVocabulary> texts;
};

const Vocab & vocab_of(const std::string & name) {
    static std::map<std::string, Vocab> known;
    Vocab & vocab = known[name];
    if (vocab.model == nullptr) {
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        const std::string path = std::string(ELIZA_TEST_VOCABULARIES) + "/ggml-vocab-" + name + ".gguf";
        vocab.model.reset(llama_model_load_from_file(path.c_str(), params));
        const llama_vocab * raw = llama_model_get_vocab(vocab.model.get());
        std::vector<std::string> texts;
        std::vector<llama_token> ends;
        for (llama_token token = 0; token < llama_vocab_n_tokens(raw); ++token) {
            const bool is_end = llama_vocab_is_eog(raw, token);
            texts.push_back(is_end ? "" : token_piece(raw, token, /*special=*/false));
            if (is_end) ends.push_back(token);
        }
        vocab.texts = std::make_shared<const GrammarVocabulary>(
            raw,
            std::make_shared<const Vocabulary>(ByteTrie(std::vector<std::string_view>(texts.begin(), texts.end()))),
            ends, /*with_controls=*/true);
    }
    return vocab;
}

std::vector<llama_token> allowed(StatesGrammar & grammar) { return grammar.mask()->tokens.tokens(); }

// Returns true if the bytes can be continued to valid UTF-8.
bool may_become_utf8(const std::string & bytes) {
    for (size_t i = 0; i < bytes.size();) {
        const auto at = [&](size_t k) { return static_cast<uint8_t>(bytes[k]); };
        const uint8_t lead = at(i);
        const size_t length = lead < 0x80   ? 1
                              : lead < 0xc2 ? 0
                              : lead < 0xe0 ? 2
                              : lead < 0xf0 ? 3
                              : lead < 0xf5 ? 4
                                            : 0;
        if (length == 0 || lead == 0) return false;
        for (size_t k = 1; k < length && i + k < bytes.size(); ++k) {
            uint8_t low = 0x80, high = 0xbf;
            if (k == 1 && lead == 0xe0) low = 0xa0;
            if (k == 1 && lead == 0xed) high = 0x9f;
            if (k == 1 && lead == 0xf0) low = 0x90;
            if (k == 1 && lead == 0xf4) high = 0x8f;
            if (at(i + k) < low || at(i + k) > high) return false;
        }
        i += length;
    }
    return true;
}

constexpr const char * json_grammar = R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20})";

const char * const grammars[] = {
    json_grammar,
    R"(root ::= "yes" | "no" | "yes, but not today")",
    R"(root ::= [a-z]+ " " [^a-z0-9]* "!" | .{0,3} "é" [à-ÿ一-龥]* "日本" [^一-龥]?)",
    R"(root ::= ("a"? "b"?){0,12} [a-c]* "\n")",
    R"~(root ::= list
list ::= "(" list* ")" | [0-9]+ | "\"" [^"]* "\"")~",
    R"(root ::= (item ", ")* item "."
item ::= [A-Z] [a-z]+ (" " item)? | "\U0001F600" | "\u00e9t\u00e9" | "x\x41")",
    R"(root ::= [^\n]* "\n" [^\x00-\x7f]* [😀-😎]+)",
};

// Walks at random, and compares at every step. Returns the number of steps.
size_t compare(const Vocab & vocab, const std::string & gbnf, std::mt19937 & random, size_t n_steps) {
    const llama_vocab * raw = vocab.texts->vocab();
    LlamaGrammar theirs(raw, gbnf);
    StatesGrammar ours(vocab.texts, gbnf, GrammarLimits());
    std::string text;
    for (size_t step = 0; step < n_steps; ++step) {
        std::vector<llama_token> expected;
        for (const llama_token token : theirs.allowed()) {
            if (vocab.texts->is_end(token) || may_become_utf8(text + std::string(vocab.texts->text(token)))) {
                expected.push_back(token);
            }
        }
        EXPECT_EQ(allowed(ours), expected) << gbnf << "\nafter " << text;
        if (expected.empty() || allowed(ours) != expected) return step;
        // Short tokens make longer walks.
        llama_token token = expected[random() % expected.size()];
        for (int i = 0; i < 3; ++i) {
            const llama_token other = expected[random() % expected.size()];
            if (vocab.texts->text(other).size() < vocab.texts->text(token).size() && !vocab.texts->is_end(other)) {
                token = other;
            }
        }
        EXPECT_TRUE(ours.allows(token));
        if (vocab.texts->is_end(token)) return step + 1;
        for (int i = 0; i < 20; ++i) {
            const auto any = static_cast<llama_token>(random() % vocab.texts->n_vocab());
            EXPECT_EQ(ours.allows(any), std::binary_search(expected.begin(), expected.end(), any));
        }
        ours.accept(token);
        theirs.accept(token);
        text += vocab.texts->text(token);
    }
    return n_steps;
}

Error error_of(const std::function<void()> & what) {
    try {
        what();
    } catch (const Error & error) {
        return error;
    }
    return Error(ELIZA_OK, "no error");
}

TEST(GrammarStates, AllowWhatLlamaCppAllows) {
    std::mt19937 random(1);
    for (const char * name : {"llama-spm", "gpt-2", "qwen2"}) {
        size_t n_steps = 0;
        for (const char * gbnf : grammars) {
            for (int round = 0; round < 3; ++round) n_steps += compare(vocab_of(name), gbnf, random, 12);
        }
        EXPECT_GT(n_steps, 100u) << name;
    }
}

std::string random_grammar(std::mt19937 & random) {
    static const char * const terms[] = {"\"a\"", "\"ab\"", "[a-f]", "[^a-y]", ".",     "\" \"", "\"the\"",
                                         "[0-9]", "\"é\"",  "\"(\"", "\")\"",  "[A-Z]", "r1",    "r2"};
    const auto sequence = [&](bool may_refer) {
        std::string text;
        for (size_t n = 1 + random() % 4; n > 0; --n) {
            std::string term = terms[random() % (may_refer ? 14 : 12)];
            switch (random() % 6) {
                case 0: term = "(" + term + " | \"z\")*"; break;
                case 1: term = "(" + term + ")?"; break;
                case 2: term = "(" + term + "){1,3}"; break;
                default: break;
            }
            text += (text.empty() ? "" : " ") + term;
        }
        return text;
    };
    std::string gbnf = "root ::= \"x\" " + sequence(true) + " | " + sequence(true) + "\n";
    gbnf += "r1 ::= \"b\" " + sequence(true) + " | \"c\" r2? \"d\" | " + sequence(false) + "\n";
    gbnf += "r2 ::= \"<\" r1 \">\" | [a-z] [a-z]\n";
    return gbnf;
}

TEST(GrammarStates, AllowWhatLlamaCppAllowsInRandomGrammars) {
    std::mt19937 random(2);
    size_t n_steps = 0;
    for (int round = 0; round < 150; ++round)
        n_steps += compare(vocab_of("llama-spm"), random_grammar(random), random, 8);
    EXPECT_GT(n_steps, 500u);
}

// llama.cpp is not the reference here. Where a grammar names a token, llama.cpp also allows tokens whose text runs past
// that place, and then fails to accept them.
TEST(GrammarStates, TokensCanBeNamed) {
    const Vocab & vocab = vocab_of("qwen2");
    const auto token_of = [&](const std::string & text) {
        for (llama_token token = 0; token < static_cast<llama_token>(vocab.texts->n_vocab()); ++token) {
            if (vocab.texts->text(token) == text) return token;
        }
        return -1;
    };
    const llama_token start = token_of("<|im_start|>"), user = token_of("user"), users = token_of("users");
    const llama_token dot = token_of("."), a = token_of("a"), ab = token_of("ab"), b = token_of("b");
    const auto name = [](llama_token token) { return "<[" + std::to_string(token) + "]>"; };
    const llama_token end = vocab.texts->ends()[0];

    StatesGrammar turn(vocab.texts, "root ::= <|im_start|> \"user\" (!" + name(dot) + ")* " + name(dot),
                       GrammarLimits());
    EXPECT_EQ(allowed(turn), std::vector<llama_token>{start});
    EXPECT_FALSE(turn.allows(token_of("<")));  // tokens that only spell the named token's text are not allowed
    turn.accept(start);
    EXPECT_TRUE(turn.allows(user));
    EXPECT_FALSE(turn.allows(users));
    turn.accept(user);
    for (const llama_token token : {users, a, start, dot}) EXPECT_TRUE(turn.allows(token));
    EXPECT_FALSE(turn.allows(end));
    turn.accept(users);
    turn.accept(dot);
    EXPECT_EQ(allowed(turn), vocab.texts->ends());

    // The grammar allows tokens both by their text and by their name.
    StatesGrammar both(vocab.texts, "root ::= [a-c] \"b\" | " + name(a) + " | !" + name(b) + " \"!\"", GrammarLimits());
    EXPECT_TRUE(both.allows(ab));
    EXPECT_TRUE(both.allows(b));
    EXPECT_TRUE(both.allows(dot));
    both.accept(a);
    EXPECT_EQ(allowed(both).front(), 0);  // "!"
    EXPECT_TRUE(both.allows(b));
    EXPECT_TRUE(both.may_end());
    EXPECT_FALSE(both.allows(dot));
}

TEST(GrammarStates, UnknownTokenNamesAreRejected) {
    for (const char * name : {"<[151936]>", "!<[2147483648]>", "<[4294967295]>"}) {
        EXPECT_NE(std::string(error_of([&] {
                                  StatesGrammar(vocab_of("gpt-2").texts, "root ::= \"a\" | " + std::string(name),
                                                GrammarLimits());
                              }).what())
                      .find("is outside the vocabulary of 50257"),
                  std::string::npos)
            << name;
    }
}

TEST(GrammarStates, AnAmbiguousGrammarTakesFewSteps) {
    std::string optional = "root ::= ", letters = "root ::= ";
    for (int i = 0; i < 400; ++i) optional += "\"a\"? ";
    for (int i = 0; i < 300; ++i) letters += "[a-z]? ";
    GrammarLimits limits;
    limits.n_steps = 100'000;  // with a stack for every combination there would be 10 million
    for (const std::string & gbnf : {optional, letters}) {
        StatesGrammar grammar(vocab_of("qwen2").texts, gbnf, limits);
        EXPECT_GT(grammar.mask()->tokens.count(), 5u);
        EXPECT_TRUE(grammar.may_end());
    }
}

// After n characters there are 3 to the power of n different stacks.
constexpr const char * exploding = R"(root ::= "a" root "b" | "a" root "c" | "a" root "d" | "e")";

TEST(GrammarStates, ExceedingALimitIsAnErrorAndKeepsTheText) {
    const Vocab & vocab = vocab_of("gpt-2");
    GrammarLimits limits;
    limits.n_steps = 1000;
    StatesGrammar grammar(vocab.texts, exploding, limits);
    const llama_token a = 64;
    ASSERT_EQ(vocab.texts->text(a), "a");
    int n_accepted = 0;
    std::string error;
    for (; n_accepted < 40 && error.empty(); ++n_accepted) {
        EXPECT_TRUE(grammar.in_step());
        grammar.accept(a);
        const Error outcome = error_of([&] { grammar.in_step(); });
        error = outcome.status() == ELIZA_OK ? "" : outcome.what();
    }
    EXPECT_EQ(
        error,
        "gbnf_grammar: the next token takes more than 1000 steps through the grammar (option grammar_budget): the "
        "grammar is too ambiguous here");
    EXPECT_GT(n_accepted, 3);
    EXPECT_EQ(error_of([&] { grammar.mask(); }).what(), error);
    grammar.reset();
    EXPECT_TRUE(grammar.allows(a));

    limits.n_steps = 1'000'000'000;
    limits.n_bytes = size_t(1) << 20;
    StatesGrammar large(vocab.texts, exploding, limits);
    for (int i = 0; i < 40; ++i) large.accept(a);
    EXPECT_NE(std::string(error_of([&] { large.mask(); }).what()).find("more than 1 MiB"), std::string::npos);
}

TEST(GrammarStates, CallTheCheckpointWhileTheyWork) {
    GrammarLimits limits;
    int n_calls = 0;
    limits.checkpoint = [&] {
        if (++n_calls == 3) throw Error(ELIZA_ERR_CANCELLED, "cancelled");
    };
    StatesGrammar grammar(vocab_of("gpt-2").texts, exploding, limits);
    for (int i = 0; i < 30; ++i) grammar.accept(64);
    EXPECT_EQ(error_of([&] { grammar.mask(); }).status(), ELIZA_ERR_CANCELLED);
}

TEST(GrammarStates, DroppedStatesAreRecomputed) {
    GrammarLimits limits;
    limits.n_bytes_kept = 0;  // drop everything after every token
    const Vocab & vocab = vocab_of("llama-spm");
    std::mt19937 random(5);
    for (const char * gbnf : grammars) {
        StatesGrammar keeps(vocab.texts, gbnf, GrammarLimits()), forgets(vocab.texts, gbnf, limits);
        for (int step = 0; step < 15; ++step) {
            const std::vector<llama_token> legal = allowed(keeps);
            ASSERT_EQ(allowed(forgets), legal) << gbnf;
            if (legal.empty()) break;
            const llama_token token = legal[random() % legal.size()];
            keeps.accept(token);
            forgets.accept(token);
        }
    }
}

TEST(GrammarStates, ALaterTextReusesTheMasks) {
    const Vocab & vocab = vocab_of("llama-spm");
    const std::string gbnf = R"(root ::= "reused " [a-z]+)";
    SharedMask first;
    {
        StatesGrammar grammar(vocab.texts, gbnf, GrammarLimits());
        first = grammar.mask();
        StatesGrammar beside(vocab.texts, gbnf, GrammarLimits());
        EXPECT_NE(beside.mask(), first);  // one text at a time uses an automaton
        EXPECT_EQ(allowed(beside), first->tokens.tokens());
    }
    EXPECT_EQ(StatesGrammar(vocab.texts, gbnf, GrammarLimits()).mask(), first);
    EXPECT_NE(StatesGrammar(vocab.texts, gbnf + "\nother ::= root", GrammarLimits(), {}, "other").mask(), first);
}

TEST(GrammarStates, LaterTextsAllowTheSameTokens) {
    std::mt19937 random(7);
    const Vocab & vocab = vocab_of("llama-spm");
    for (const char * gbnf : grammars) {
        for (int text = 0; text < 3; ++text) compare(vocab, gbnf, random, 6);
    }
}

TEST(GrammarStates, ThreadsReuseTheAutomata) {
    const Vocab & vocab = vocab_of("llama-spm");
    const auto walk = [&](const std::string & gbnf) {
        StatesGrammar grammar(vocab.texts, gbnf, GrammarLimits());
        std::vector<std::vector<llama_token>> steps = {allowed(grammar)};
        while (steps.size() < 6 && !steps.back().empty()) {
            grammar.accept(steps.back().front());
            steps.push_back(allowed(grammar));
        }
        return steps;
    };
    const std::vector<std::string> texts = {R"(root ::= "a" [a-z]+)", R"(root ::= [0-9]+ ("," [0-9]+)*)",
                                            R"(root ::= "yes" | "no")"};
    std::vector<std::vector<std::vector<llama_token>>> expected;
    for (const std::string & gbnf : texts) expected.push_back(walk(gbnf));
    std::atomic<int> n_different = 0;
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (size_t i = thread; i < thread + 12; ++i) {
                n_different += walk(texts[i % texts.size()]) != expected[i % texts.size()];
            }
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(n_different, 0);
}

TEST(GrammarStates, ALaterTextHasItsOwnLimits) {
    const Vocab & vocab = vocab_of("gpt-2");
    const auto error_with = [&](const GrammarLimits & limits) {
        StatesGrammar grammar(vocab.texts, exploding, limits);
        for (int i = 0; i < 8; ++i) grammar.accept(64);
        return std::string(error_of([&] { grammar.in_step(); }).what());
    };
    GrammarLimits few;
    few.n_steps = 1000;
    // The states of a failed computation are dropped. Otherwise the second call would get further.
    const std::string error = error_with(few);
    EXPECT_NE(error.find("more than 1000 steps"), std::string::npos) << error;
    EXPECT_EQ(error_with(few), error);
    EXPECT_EQ(error_with(GrammarLimits()), "no error");
    EXPECT_EQ(error_with(few), "no error");  // the states are known now
}

TEST(AutomatonPool, DropsTheAutomataThatWereGivenBackFirst) {
    AutomatonPool pool;
    const auto give = [&](const std::string & key, size_t n_bytes) {
        pool.give_back(key, std::make_unique<GrammarAutomaton>(), n_bytes);
    };
    give("a", size_t(30) << 20);
    give("b", size_t(30) << 20);
    EXPECT_EQ(pool.take("c"), nullptr);
    EXPECT_NE(pool.take("a"), nullptr);
    EXPECT_EQ(pool.take("a"), nullptr);
    give("a", size_t(30) << 20);
    give("c", size_t(30) << 20);  // too much for all three
    EXPECT_EQ(pool.take("b"), nullptr);
    EXPECT_NE(pool.take("a"), nullptr);
    give("a", size_t(30) << 20);
    for (int i = 0; i < 100; ++i) give("d", 1);
    EXPECT_EQ(pool.take("a"), nullptr);
    int n_kept = 0;
    while (pool.take("d") != nullptr) ++n_kept;
    EXPECT_EQ(n_kept, 64);
}

TEST(GrammarStates, HiddenLeftRecursionIsRejected) {
    for (const char * gbnf :
         {"root ::= root \"a\" | \"b\"", "root ::= x root \"y\" | \"z\"\nx ::= y\ny ::= | \"q\"",
          "root ::= a\na ::= b \"x\"\nb ::= c? a | \"t\"\nc ::= \"u\"", "root ::= a root | \"b\"\na ::= root?"}) {
        EXPECT_NE(std::string(error_of([&] { StatesGrammar(vocab_of("gpt-2").texts, gbnf, GrammarLimits()); }).what())
                      .find("begins with itself"),
                  std::string::npos)
            << gbnf;
    }
}

TEST(GrammarStates, AListWithEmptyItemsIsNotLeftRecursive) {
    std::mt19937 random(6);
    const Vocab & vocab = vocab_of("llama-spm");
    for (const char * gbnf : {"root ::= (\"a\"? | \"z\")* \"!\"", "root ::= (x \"b\"?)+\nx ::= y?\ny ::= \"c\"?"}) {
        EXPECT_GT(compare(vocab, gbnf, random, 8), 0u);
    }
    EXPECT_FALSE(StatesGrammar(vocab.texts, "root ::= root | \"a\"", GrammarLimits()).allows(vocab.texts->ends()[0]));
    StatesGrammar endless(vocab.texts, "root ::= root", GrammarLimits());
    EXPECT_STREQ(error_of([&] { endless.mask(); }).what(), "gbnf_grammar: the grammar matches no text");
}

TEST(GrammarStates, ALazyGrammarBeginsWhereLlamaCppsDoes) {
    const Vocab & vocab = vocab_of("qwen2");
    const llama_vocab * raw = vocab.texts->vocab();
    struct Case {
        std::string json, gbnf;
        std::vector<std::string> patterns;
        std::vector<llama_token> tokens;
    };
    const llama_token im_start = 151644;
    ASSERT_EQ(vocab.texts->text(im_start), "<|im_start|>");
    const Case cases[] = {
        {R"~([{"type":"word","value":"{\"a"}])~", R"(root ::= "{\"a" [a-z]* "\"}")", {R"([\s\S]*?(\{"a[\s\S]*))"}, {}},
        {R"~([{"type":"word","value":"nevernever"},{"type":"word","value":"<tool>"}])~",
         R"(root ::= "<tool>" [ -~]*)",
         {R"([\s\S]*?(nevernever[\s\S]*))", R"([\s\S]*?(<tool>[\s\S]*))"},
         {}},
        {R"~([{"type":"word","value":"12"},{"type":"token","value":151644}])~",
         R"(root ::= [0-9]+ "." | "<|im_start|>" [a-z]+)",
         {R"([\s\S]*?(12[\s\S]*))"},
         {im_start}},
    };
    const std::string texts[] = {"say {\"abc\"}", "hello <tool>{}", "it is 12", "x <taaool> y", "{\"b {\"a{\"a"};
    for (const Case & each : cases) {
        for (const std::string & text : texts) {
            LlamaGrammar theirs(raw, each.gbnf, each.patterns, each.tokens);
            StatesGrammar ours(vocab.texts, each.gbnf, GrammarLimits(), parse_grammar_triggers(each.json));
            std::vector<llama_token> tokens(text.size());
            tokens.resize(
                static_cast<size_t>(llama_tokenize(raw, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                                   static_cast<int32_t>(tokens.size()), false, false)));
            tokens.push_back(im_start);
            for (const llama_token token : tokens) {
                const std::vector<llama_token> expected = theirs.allowed();
                const bool waits = expected.size() == vocab.texts->n_vocab();
                ASSERT_EQ(ours.is_awake(), !waits) << each.json << " in " << text;
                if (!waits) {
                    EXPECT_EQ(allowed(ours), expected) << each.json << " in " << text;
                    if (!std::binary_search(expected.begin(), expected.end(), token)) break;
                }
                ours.accept(token);
                try {
                    theirs.accept(token);
                } catch (const std::exception &) {  // the grammar does not allow the text since the trigger
                    EXPECT_FALSE(ours.in_step()) << each.json << " in " << text;
                    break;
                }
            }
        }
    }
}

}  // namespace
}  // namespace eliza::test
