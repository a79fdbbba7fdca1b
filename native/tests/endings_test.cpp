// Questions after one prompt: scored together, they get the same scores as one by one.

#include <cmath>
#include <random>

#include "mtp_test_model.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Tokens = std::vector<int32_t>;

struct Question {
    Tokens tokens;
    Leaves leaves;
};

struct Scores {
    int status = 0;
    std::string error;
    std::vector<double> legal, joint, option_mass;
};

ContextHandle make_context(const std::string & strategy, const std::string & model = f32_model_path(),
                           const std::string & n_batch = "512") {
    return create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"n_batch", n_batch}, {"strategy", strategy}}, model);
}

struct Endings {
    std::vector<ChoicesHandle> choices;
    std::vector<eliza_ending_t> endings;
    size_t n = 0;  // labels
};

Endings endings_of(const ContextHandle & context, const std::vector<Question> & questions) {
    Endings made;
    for (const Question & question : questions) {
        made.choices.push_back(prepare(context, question.leaves));
        made.endings.push_back({question.tokens.data(), question.tokens.size(), made.choices.back().get()});
        made.n += question.leaves.size();
    }
    return made;
}

Scores score(const ContextHandle & context, const StreamHandle & stream, const std::vector<Question> & questions) {
    const auto [choices, endings, n] = endings_of(context, questions);
    Scores scores{0, "", std::vector<double>(n), std::vector<double>(n), std::vector<double>(questions.size())};
    ErrorText error;
    scores.status =
        eliza_inference_llm_stream_score_endings(stream.get(), endings.data(), endings.size(), scores.legal.data(),
                                                 scores.joint.data(), scores.option_mass.data(), n, error.out());
    scores.error = error.text();
    return scores;
}

// Returns the probability of a token after others, from the whole row of logits.
double probability(const ContextHandle & context, const Tokens & tokens, int32_t target) {
    float p = 0.0f;
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_eot_score(context.get(), tokens.data(), tokens.size(), target, &p, nullptr, nullptr,
                                            error.out()),
              0)
        << error.text();
    return p;
}

void expect_near(const std::vector<double> & a, const std::vector<double> & b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "place " << i;
}

// Endings that share beginnings, contain each other, repeat, and may be empty; leaves over a small alphabet.
std::vector<Question> random_questions(std::mt19937 & random, size_t n, size_t longest, int32_t first_token) {
    const auto token = [&](uint32_t alphabet) { return first_token + static_cast<int32_t>(random() % alphabet); };
    std::vector<Question> questions(n);
    for (size_t i = 0; i < n; ++i) {
        if (i > 0 && random() % 2 == 0) {
            questions[i].tokens = questions[random() % i].tokens;
            questions[i].tokens.resize(random() % (questions[i].tokens.size() + 1));
        }
        const size_t length = random() % (longest + 1);
        while (questions[i].tokens.size() < length) questions[i].tokens.push_back(token(20));
        questions[i].leaves.resize(1 + random() % 5);
        for (Tokens & leaf : questions[i].leaves) {
            leaf.resize(1 + random() % 3);
            for (int32_t & each : leaf) each = token(4);
        }
    }
    return questions;
}

const Tokens prompt = {300, 301, 302, 303, 304, 305, 306, 307, 308, 309};

TEST(Endings, TogetherHaveTheSameScoresAsOneByOne) {
    const ContextHandle together = make_context("auto"), alone = make_context("token-by-token");
    std::mt19937 random{3};
    for (int round = 0; round < 12; ++round) {
        const std::vector<Question> questions = random_questions(random, 1 + random() % 12, 12, 310);
        const StreamHandle a = open(together, full_precision_config()), b = open(alone, full_precision_config());
        prefill(a, prompt);
        prefill(b, prompt);
        const Scores fast = score(together, a, questions), slow = score(alone, b, questions);
        ASSERT_GT(fast.status, 0) << fast.error;
        ASSERT_EQ(fast.status, slow.status) << slow.error;
        expect_near(fast.legal, slow.legal, 1e-4);
        expect_near(fast.joint, slow.joint, 1e-4);
        expect_near(fast.option_mass, slow.option_mass, 1e-5);
    }
}

TEST(Endings, AgreeWithWholeRowsOfLogits) {
    const ContextHandle context = make_context("auto");
    const std::vector<Question> questions = {{{320, 321, 322}, {{330, 331, 332}, {330, 333}, {334}}},
                                             {{}, {{335}, {336, 337}}}};
    const StreamHandle stream = open(context);
    prefill(stream, prompt);
    const Scores scores = score(context, stream, questions);
    ASSERT_EQ(scores.status, 5) << scores.error;
    size_t place = 0;
    for (size_t i = 0; i < questions.size(); ++i) {
        Tokens before = prompt;
        before.insert(before.end(), questions[i].tokens.begin(), questions[i].tokens.end());
        std::map<int32_t, double> of_first;
        for (const Tokens & leaf : questions[i].leaves) {
            Tokens text = before;
            double joint = 0.0;
            for (const int32_t token : leaf) {
                joint += std::log(probability(context, text, token));
                text.push_back(token);
            }
            EXPECT_NEAR(scores.joint[place++], joint, 2e-2);
            of_first[leaf[0]] = probability(context, before, leaf[0]);
        }
        double mass = 0.0;
        for (const auto & [token, p] : of_first) mass += p;
        EXPECT_NEAR(scores.option_mass[i], mass, 1e-4);
    }
}

TEST(Endings, HaveTheScoresOfASpanAfterTheirTokens) {
    const ContextHandle context = make_context("auto", f32_model_path());
    std::mt19937 random{5};
    const std::vector<Question> questions = random_questions(random, 6, 8, 310);
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, prompt);
    const Scores scores = score(context, stream, questions);
    ASSERT_GT(scores.status, 0) << scores.error;
    size_t place = 0;
    for (const Question & question : questions) {
        const StreamHandle own = open(context, full_precision_config());
        prefill(own, prompt);
        prefill(own, question.tokens);
        const ChoicesHandle choices = prepare(context, question.leaves);
        ASSERT_EQ(eliza_inference_set_choices(own.get(), choices.get(), ELIZA_TRIE_ARGMAX), 0);
        std::vector<double> expected(question.leaves.size());
        ASSERT_GT(eliza_inference_token_trie_scores(own.get(), expected.data(), expected.size()), 0)
            << eliza_inference_last_error(own.get());
        for (const double each : expected) EXPECT_NEAR(scores.legal[place++], each, 1e-4);
    }
}

TEST(Endings, OfTwentyQuestionsGoThroughTheModelInOnePass) {
    const ContextHandle context = make_context("auto");
    std::vector<Question> questions;
    for (int32_t i = 0; i < 20; ++i) questions.push_back({{320 + i, 321, 322, 323}, {{340}, {341}, {342}}});
    const StreamHandle stream = open(context);
    prefill(stream, prompt);
    ASSERT_EQ(score(context, stream, questions).status, 60);
    EXPECT_EQ(stats(stream).forward_passes, 2);
    EXPECT_EQ(stats(stream).prompt_passes, 1);
}

// The labels of the first question follow the prompt directly, so the row after the prompt is wanted, too.
TEST(Endings, AreReadTogetherWithAnAppendedPrompt) {
    const ContextHandle context = make_context("auto", f32_model_path());
    std::mt19937 random{9};
    std::vector<Question> questions = random_questions(random, 6, 8, 310);
    questions.front().tokens.clear();
    const StreamHandle read = open(context, full_precision_config());
    prefill(read, prompt);
    const Scores expected = score(context, read, questions);
    ASSERT_GT(expected.status, 0) << expected.error;
    std::vector<int32_t> other = prompt;
    other.front() += 1;  // nothing of the first prompt is in the cache
    for (const std::vector<int32_t> & text : {other, prompt}) {
        const StreamHandle stream = open(context, full_precision_config());
        ASSERT_EQ(eliza_inference_llm_stream_append(stream.get(), text.data(), text.size(), nullptr), 0);
        EXPECT_EQ(stats(stream).forward_passes, 0);
        const Scores scores = score(context, stream, questions);
        ASSERT_GT(scores.status, 0) << scores.error;
        EXPECT_EQ(stats(stream).forward_passes, 1);
        EXPECT_EQ(stats(stream).prompt_passes, 1);
        EXPECT_EQ(stats(stream).prompt_tokens, static_cast<int64_t>(text.size()));
        if (text == prompt) {
            EXPECT_GT(stats(stream).prompt_tokens_reused, 0);
            expect_near(scores.legal, expected.legal, 1e-4);
            expect_near(scores.joint, expected.joint, 1e-4);
        }
    }
}

// A decision has the scores of a stream, and its hidden states come from the same passes, whatever the cache holds.
TEST(Endings, OfADecisionAreThoseOfAStream) {
    const std::shared_ptr<Model> model = Model::load(f32_model_path(), {});
    const int32_t n_layers = llama_model_n_layer(model->get());
    const size_t n_embd = static_cast<size_t>(llama_model_n_embd(model->get()));
    std::mt19937 random{11};
    Tokens text = prompt;
    for (int32_t i = 0; i < 40; ++i) text.push_back(340 + i);
    const std::vector<uint64_t> ranges = {12, 45, text.size() - 1, text.size()};
    for (const char * strategy : {"auto", "token-by-token"}) {
        for (const char * n_batch : {"16", "512"}) {
            const ContextHandle context = make_context(strategy, f32_model_path(), n_batch);
            const ContextHandle other = make_context(strategy, f32_model_path(), n_batch);
            for (const std::vector<int32_t> & layers :
                 {std::vector<int32_t>{1}, std::vector<int32_t>{n_layers}, std::vector<int32_t>{1, 2, n_layers}}) {
                std::vector<Question> questions = random_questions(random, 4, 8, 310);
                questions.front().tokens.clear();
                const StreamHandle stream = open(other, full_precision_config());
                prefill(stream, text);
                const Scores expected = score(other, stream, questions);
                Decide states{text, layers, ranges};
                states.states.resize(layers.size() * 2 * n_embd);
                ASSERT_EQ(states.call(other), 0) << states.error.text();
                const Endings asked = endings_of(context, questions);
                for (const bool with_states : {true, false, true}) {
                    Decide both{text, with_states ? layers : Tokens{}, ranges, asked.endings};
                    both.states.resize(states.states.size());
                    both.legal.resize(asked.n);
                    both.joint.resize(asked.n);
                    both.option_mass.resize(questions.size());
                    ASSERT_EQ(both.call(context), expected.status) << both.error.text();
                    expect_near(both.legal, expected.legal, 1e-4);
                    expect_near(both.joint, expected.joint, 1e-4);
                    expect_near(both.option_mass, expected.option_mass, 1e-5);
                    for (size_t i = 0; with_states && i < both.states.size(); ++i) {
                        ASSERT_NEAR(both.states[i], states.states[i], 1e-4) << i;
                    }
                    if (std::string(strategy) == "auto" && std::string(n_batch) == "512") {
                        EXPECT_EQ(both.request.forward_passes, 1);
                    }
                }
            }
        }
    }
}

TEST(Endings, OfADecisionThatFailsWriteNothing) {
    const ContextHandle context = make_context("auto");
    const std::vector<Question> short_one = {{{}, {{340}, {341}}}}, long_one = {{Tokens(3000, 321), {{340}, {341}}}};
    const auto ask = [&](const std::vector<Question> & questions, int32_t layer, int32_t is_cancelled) {
        const Endings asked = endings_of(context, questions);
        Decide made{prompt, {layer}, {0, 5}, asked.endings};
        made.request.cancelled = is_cancelled;
        made.legal.assign(asked.n, -1.0);
        made.states.assign(4096, -1.0f);
        const int32_t status = made.call(context);
        const bool is_written = made.legal[0] != -1.0 || made.states[0] != -1.0f;
        EXPECT_EQ(is_written, status > 0) << made.error.text();
        return status;
    };
    EXPECT_EQ(ask(long_one, 1, 0), ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(ask(short_one, 99, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(ask(short_one, 1, 1), ELIZA_ERR_CANCELLED);
    EXPECT_EQ(ask(short_one, 1, 0), 2);
    Decide nothing{prompt};
    EXPECT_EQ(nothing.call(context), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(nothing.error.text(), "expected endings or layers, got none");
    nothing.request.size = 0;
    EXPECT_EQ(eliza_inference_decide(context.get(), &nothing.request, nothing.error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(nothing.error.text().rfind("request.size: expected ", 0), 0u) << nothing.error.text();
}

TEST(Endings, OfADecisionCanBeCancelledAtAnyMoment) {
    const ContextHandle context = create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"n_batch", "32"}}, f32_model_path());
    const std::vector<Question> questions = {{{}, {{340}, {341}}}};
    const Endings asked = endings_of(context, questions);
    std::mt19937 random{5};
    int n_cancelled = 0, n_answered = 0;
    for (int pause_us = 0; pause_us < 10'000'000 && (n_answered == 0 || n_cancelled == 0);
         pause_us = pause_us * 2 + 50) {
        Decide made{random_questions(random, 1, 1, 300).front().leaves.front(), {}, {}, asked.endings};
        while (made.tokens.size() < 600) made.tokens.push_back(300 + static_cast<int32_t>(random() % 40));
        made.legal.resize(2);
        made.prepare();
        std::thread canceller([&] {
            std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
            EXPECT_EQ(eliza_inference_cancel_decide(context.get(), &made.request), 0);
        });
        if (pause_us == 0) canceller.join();
        const int32_t status = eliza_inference_decide(context.get(), &made.request, made.error.out());
        if (canceller.joinable()) canceller.join();
        EXPECT_TRUE(status == 2 || status == ELIZA_ERR_CANCELLED) << made.error.text();
        ++(status == 2 ? n_answered : n_cancelled);
    }
    EXPECT_GT(n_cancelled, 0);
    EXPECT_GT(n_answered, 0);
}

TEST(Endings, OfADecisionThatWaitsForASlotCanBeCancelled) {
    const ContextHandle context = create({{"n_slots", "1"}, {"slot_wait_ms", "60000"}}, f32_model_path());
    const std::vector<Question> questions = {{{}, {{340}, {341}}}};
    const Endings asked = endings_of(context, questions);
    const StreamHandle other = open(context, full_precision_config());
    for (const bool is_set : {true, false}) {
        Decide made{prompt, {}, {}, asked.endings};
        made.legal.resize(2);
        made.prepare();
        std::thread canceller([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            EXPECT_EQ(eliza_inference_cancel_decide(context.get(), &made.request), 0);
        });
        if (is_set) canceller.join();
        EXPECT_EQ(eliza_inference_decide(context.get(), &made.request, made.error.out()), ELIZA_ERR_CANCELLED)
            << made.error.text();
        if (canceller.joinable()) canceller.join();
    }
}

TEST(Endings, OfARecurrentModelAreScoredWhileOthersFillTheCache) {
    const ContextHandle context =
        create({{"n_ctx", "256"}, {"n_threads", "1"}, {"n_slots", "3"}}, mtp_model_path({"qwen35", MtpHead::random}));
    const std::vector<Question> questions = {{{}, {{340, 341, 342}, {340, 343, 344}}}, {{300}, {{340}, {341}}}};
    const Endings asked = endings_of(context, questions);
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            for (int32_t round = 0; round < 20; ++round) {
                Decide made{Tokens(static_cast<size_t>(80 + 10 * i), 400 + 3 * round + i), {}, {}, asked.endings};
                made.legal.resize(4);
                EXPECT_EQ(made.call(context), 4) << made.error.text();
            }
        });
    }
    for (std::thread & thread : threads) thread.join();
}

TEST(Endings, ThatDoNotFitOnePassFollowInTheNext) {
    const ContextHandle small = make_context("auto", f32_model_path(), "32"), large = make_context("auto");
    std::mt19937 random{7};
    const std::vector<Question> questions = random_questions(random, 30, 20, 310);
    const StreamHandle a = open(small, full_precision_config()), b = open(large, full_precision_config());
    prefill(a, prompt);
    prefill(b, prompt);
    const Scores in_many = score(small, a, questions), in_few = score(large, b, questions);
    ASSERT_GT(in_many.status, 0) << in_many.error;
    expect_near(in_many.legal, in_few.legal, 1e-4);
    expect_near(in_many.joint, in_few.joint, 1e-4);
    EXPECT_GT(stats(a).forward_passes, stats(b).forward_passes);
}

TEST(Endings, LongerThanABatchAreScoredCorrectly) {
    const ContextHandle small = make_context("auto", f32_model_path(), "32"), large = make_context("auto");
    Tokens ending(100);
    for (size_t i = 0; i < ending.size(); ++i) ending[i] = 310 + static_cast<int32_t>(i % 17);
    const std::vector<Question> questions = {{ending, {{340}, {341, 342}}}, {{320}, {{340}, {341}}}};
    const StreamHandle a = open(small, full_precision_config()), b = open(large, full_precision_config());
    prefill(a, prompt);
    prefill(b, prompt);
    const Scores one = score(small, a, questions), other = score(large, b, questions);
    ASSERT_EQ(one.status, 4) << one.error;
    expect_near(one.joint, other.joint, 1e-4);
}

TEST(Endings, LongerThanABatchGoThroughTheModelOnce) {
    const ContextHandle context = make_context("auto", f32_model_path(), "32");
    std::vector<Question> questions(3);
    for (size_t i = 0; i < questions.size(); ++i) {
        questions[i].tokens.assign(100, 310 + static_cast<int32_t>(i));
        for (int32_t k = 0; k < 20; ++k) {
            questions[i].leaves.push_back({320 + k, 340, 341});
            questions[i].leaves.push_back({320 + k, 342});
        }
    }
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, prompt);
    const Scores together = score(context, stream, questions);
    ASSERT_EQ(together.status, 120) << together.error;
    // Each question takes four passes over its 100 tokens, and some over the 40 nodes after them.
    EXPECT_LE(stats(stream).forward_passes, 1 + 3 * (4 + 6));
    const ContextHandle alone = make_context("token-by-token");
    const StreamHandle slow = open(alone, full_precision_config());
    prefill(slow, prompt);
    expect_near(together.joint, score(alone, slow, questions).joint, 1e-4);
    EXPECT_EQ(stats(stream).n_past, static_cast<int32_t>(prompt.size()));
}

TEST(Endings, LeaveTheConversationUnchanged) {
    const ContextHandle context = make_context("auto");
    std::mt19937 random{9};
    const StreamHandle asked = open(context, full_precision_config());
    prefill(asked, prompt);
    ASSERT_GT(score(context, asked, random_questions(random, 8, 10, 310)).status, 0);
    const Output after = pull(asked, 20);
    const StreamHandle fresh = open(context, full_precision_config());
    prefill(fresh, prompt);
    EXPECT_EQ(after.tokens, pull(fresh, 20).tokens);
    ASSERT_GT(score(context, asked, random_questions(random, 8, 10, 310)).status, 0)
        << "endings can follow generated tokens";
}

class EndingsOfModels : public testing::TestWithParam<const char *> {};

// Models with a recurrent state process the endings one after another, because their memory cannot fork.
TEST_P(EndingsOfModels, HaveTheScoresOfSeparateStreams) {
    const std::string model = mtp_model_path({GetParam(), MtpHead::random});
    const ContextHandle context = make_context("auto", model);
    std::mt19937 random{13};
    Tokens text(90);
    for (int32_t & token : text) token = 310 + static_cast<int32_t>(random() % 200);
    const std::vector<Question> questions = random_questions(random, 6, 9, 310);
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, text);
    const Scores scores = score(context, stream, questions);
    ASSERT_GT(scores.status, 0) << scores.error;
    const auto passes = stats(stream).forward_passes;
    size_t place = 0;
    for (const Question & question : questions) {
        const ContextHandle other = make_context("token-by-token", model);
        const StreamHandle own = open(other, full_precision_config());
        prefill(own, text);
        prefill(own, question.tokens);
        const Scores expected = score(other, own, {{{}, question.leaves}});
        ASSERT_GT(expected.status, 0) << expected.error;
        for (const double each : expected.joint) EXPECT_NEAR(scores.joint[place++], each, 1e-3);
    }
    const Tokens next = pull(stream, 5).tokens;
    const ContextHandle other = make_context("auto", model);
    const StreamHandle fresh = open(other, full_precision_config());
    prefill(fresh, text);
    EXPECT_EQ(next, pull(fresh, 5).tokens);
    const bool forks = GetParam() != std::string("qwen35");
    EXPECT_LE(passes, forks ? 2 : 60) << "the text is not read again for each question";
}

INSTANTIATE_TEST_SUITE_P(Models, EndingsOfModels, testing::Values("glm4moe", "qwen35", "step35"),
                         [](const auto & model) { return std::string(model.param); });

// A recurrent state cannot step back over a branch, so it is copied before the first one.
TEST(Branches, OfARecurrentModelDoNotReadThePromptAgain) {
    const std::string model = mtp_model_path({"qwen35", MtpHead::random});
    Tokens text(320);
    std::mt19937 random{17};
    for (int32_t & token : text) token = 310 + static_cast<int32_t>(random() % 200);
    Leaves leaves;
    for (int32_t first = 0; first < 6; ++first) {
        for (int32_t second = 0; second < 3; ++second) leaves.push_back({400 + first, 500 + second});
    }
    constexpr int64_t n_branches = 7;
    std::vector<double> scores[2];
    for (const char * strategy : {"auto", "token-by-token"}) {
        const ContextHandle context = make_context(strategy, model, "32");
        const StreamHandle stream = open(context, full_precision_config());
        prefill(stream, text);
        const int64_t passes = stats(stream).forward_passes;
        ASSERT_GE(passes, 10);
        set_trie(stream, payload(leaves), ELIZA_TRIE_ARGMAX);
        std::vector<double> & found = scores[strategy == std::string("auto") ? 0 : 1];
        found.resize(leaves.size());
        ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), found.data(), found.size()), 18);
        EXPECT_LE(stats(stream).forward_passes - passes, 2 * n_branches) << strategy;
    }
    expect_near(scores[0], scores[1], 1e-3);
}

class RefusedEndings : public testing::Test {
protected:
    ContextHandle context = make_context("auto");
    StreamHandle stream = open(context);
    ChoicesHandle choices = prepare(context, {{340}, {341}});
    Tokens tokens = {320};
    double legal[2] = {7.0, 7.0};

    std::string refusal(const eliza_ending_t & ending, size_t n = 1, size_t cap = 2) {
        ErrorText error;
        EXPECT_LT(eliza_inference_llm_stream_score_endings(stream.get(), &ending, n, legal, nullptr, nullptr, cap,
                                                           error.out()),
                  0);
        EXPECT_EQ(legal[0], 7.0);
        EXPECT_EQ(legal[1], 7.0);
        return error.text();
    }
    eliza_ending_t good() { return {tokens.data(), tokens.size(), choices.get()}; }
};

TEST_F(RefusedEndings, HaveAReasonAndLeaveTheStreamUsable) {
    EXPECT_EQ(refusal(good()), "no prompt: prefill at least one token before generating");
    prefill(stream, prompt);
    EXPECT_EQ(refusal(good(), 0), "expected one ending or more, got none");
    EXPECT_EQ(refusal(good(), 1, 1), "cap: expected room for 2 leaves, got 1");
    EXPECT_EQ(refusal({nullptr, 3, choices.get()}), "endings[0]: tokens is NULL");
    EXPECT_EQ(refusal({tokens.data(), 1, nullptr}), "endings[0]: the choices are NULL");
    tokens[0] = 1 << 30;
    EXPECT_EQ(refusal(good()), "endings[0]: tokens[0]: 1073741824 is outside the vocabulary of 2048");
    tokens[0] = 320;
    ASSERT_EQ(eliza_inference_set_choices(stream.get(), choices.get(), ELIZA_TRIE_ARGMAX), 0);
    EXPECT_EQ(refusal(good()), "a span of choices is active: clear it before scoring endings");
    eliza_inference_clear_token_trie(stream.get());
    const Scores scores = score(context, stream, {{{320}, {{340}, {341}}}});
    EXPECT_EQ(scores.status, 2) << scores.error;
}

TEST_F(RefusedEndings, IfTheContextIsFull) {
    prefill(stream, Tokens(2040, 300));
    tokens.assign(20, 321);
    EXPECT_EQ(refusal(good()), "context full: endings[0] comes to 2061 tokens (option n_ctx is 2048)");
    EXPECT_EQ(score(context, stream, {{{321, 321}, {{340}, {341}}}}).status, 2);
    EXPECT_EQ(pull(stream, 3).tokens.size(), 3u) << "the stream continues";
}

// The cells are shared: an ending that fits alone may not fit next to other streams, whose cells are then taken.
TEST_F(RefusedEndings, NeverBecauseOthersFillTheContext) {
    prefill(stream, Tokens(800, 300));
    tokens.assign(100, 321);
    const Scores alone = score(context, stream, {{tokens, {{340}, {341}}}});
    const StreamHandle other = open(context);
    prefill(other, Tokens(1200, 301));
    const Scores beside = score(context, stream, {{tokens, {{340}, {341}}}});
    EXPECT_EQ(beside.status, 2) << beside.error;
    EXPECT_NEAR(beside.legal[0], alone.legal[0], 1e-3);
    EXPECT_EQ(pull(stream, 3).tokens.size(), 3u) << "the stream continues";
    EXPECT_EQ(pull(other, 3).tokens.size(), 3u) << "the other one, too";
}

TEST_F(RefusedEndings, OfAnotherModel) {
    const ContextHandle other = make_context("auto", mtp_model_path({"glm4moe", MtpHead::random}));
    choices = prepare(other, {{340}, {341}});
    prefill(stream, prompt);
    EXPECT_EQ(refusal(good()), "the labels were prepared for another model");
}

TEST_F(RefusedEndings, CountsLeavesWithoutRoom) {
    prefill(stream, prompt);
    const eliza_ending_t ending = good();
    EXPECT_EQ(eliza_inference_llm_stream_score_endings(stream.get(), &ending, 1, nullptr, nullptr, nullptr, 0, nullptr),
              2);
}

}  // namespace
}  // namespace eliza::test
