// Mistakes of callers: each one returns a status and a message, and the stream still works.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "test_session.h"

namespace eliza::test {
namespace {

class BadInput : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "256"}, {"n_slots", "2"}});
    ErrorText error;
};

TEST_F(BadInput, NullHandlesAreErrors) {
    EliInferenceContext * no_context = nullptr;
    EliLlmStream * no_stream = nullptr;
    int * tokens = nullptr;
    size_t n = 0;
    int32_t token = 0;
    char text[8];
    char * json = nullptr;
    EXPECT_EQ(eliza_inference_create(nullptr, error.out()), nullptr);
    EXPECT_EQ(error.text(), "bundle_dir is NULL");
    EXPECT_EQ(eliza_inference_mmap_acquire(no_context, "text", error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text(), "the context is NULL");
    EXPECT_EQ(eliza_inference_mmap_evict(no_context, "text", nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_option(no_context, "seed", "1", nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_option(context.get(), nullptr, "1", nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_option(context.get(), "seed", nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_progress_callback(no_context, nullptr, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_describe(nullptr, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_describe(reinterpret_cast<EliInferenceContext *>(8), &json, nullptr),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize(no_context, "a", 1, 0, 0, &tokens, &n, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize(context.get(), nullptr, 1, 0, 0, &tokens, &n, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize(context.get(), "a", 1, 0, 0, nullptr, &n, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize(context.get(), "a", 1, 0, 0, &tokens, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize_into(context.get(), nullptr, 1, 0, 0, &token, 1, nullptr),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_tokenize_into(context.get(), "a", 1, 0, 0, nullptr, 1, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_detokenize(context.get(), nullptr, 1, 0, 0, text, sizeof text, nullptr),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_detokenize(context.get(), &token, 1, 0, 0, nullptr, 8, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_open(no_context, nullptr, error.out()), nullptr);
    EXPECT_EQ(eliza_inference_llm_stream_prefill(no_stream, &token, 1, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_next(no_stream, &token, 1, &n, text, 8, nullptr, nullptr, nullptr),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_generate(no_stream, 1, collect, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_cancel(no_stream), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_reset(no_stream), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_reset_keep(no_stream, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_stats(no_stream, nullptr, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_token_trie(no_stream, "{}", 2, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_token_trie_leaf(no_stream, text, 8, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(eliza_inference_last_error(no_stream), "");
    eliza_inference_clear_token_trie(no_stream);
    eliza_inference_llm_stream_close(no_stream);
    eliza_inference_destroy(no_context);
    eliza_inference_free_string(nullptr);
    eliza_inference_free_tokens(nullptr);
}

TEST_F(BadInput, NullArgumentsAreErrors) {
    const StreamHandle stream = open(context);
    int32_t token = 0;
    size_t n = 0;
    char text[8];
    const auto next = [&](int32_t * tokens, size_t cap, size_t * count, char * out) {
        return eliza_inference_llm_stream_next(stream.get(), tokens, cap, count, out, sizeof text, nullptr, nullptr,
                                               nullptr);
    };
    EXPECT_EQ(next(nullptr, 1, &n, text), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(next(&token, 0, &n, text), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(next(&token, 1, nullptr, text), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(next(&token, 1, &n, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), nullptr, 1, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_generate(stream.get(), 1, nullptr, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_generate(stream.get(), -1, collect, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_reset_keep(stream.get(), -1), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_stats(stream.get(), nullptr, 8), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_token_trie(stream.get(), nullptr, 0, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(eliza_inference_last_error(stream.get()), "payload is NULL");
    EXPECT_EQ(eliza_inference_token_trie_leaf(stream.get(), text, 8, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(eliza_inference_last_error(stream.get()), "no span has ended on a leaf");
}

TEST_F(BadInput, ClosedHandlesAreRejected) {
    StreamHandle stream = open(context);
    EliLlmStream * closed = stream.get();
    stream.reset();
    const StreamHandle other = open(context);  // must not get the same handle
    EXPECT_NE(other.get(), closed);
    const int32_t token = 5;
    EXPECT_EQ(eliza_inference_llm_stream_prefill(closed, &token, 1, error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text(), "the stream is closed, or its handle is invalid");
    eliza_inference_llm_stream_close(closed);
}

TEST_F(BadInput, DestroyClosesTheStreams) {
    StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    context.reset();
    const Output output = pull(stream);
    EXPECT_EQ(output.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(output.error, "the stream is closed, or its handle is invalid");
}

TEST_F(BadInput, GeneratingWithoutAPromptIsAnError) {
    const StreamHandle stream = open(context);
    prefill(stream, {});
    const Output output = pull(stream);
    EXPECT_EQ(output.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(output.error, "no prompt: prefill at least one token before generating");
}

TEST_F(BadInput, TokensOutsideTheVocabularyAreNamed) {
    const StreamHandle stream = open(context);
    const int32_t bad[] = {5, 6, -3};
    EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), bad, 3, error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text().find("tokens[2]: -3 is outside the vocabulary of "), 0u) << error.text();
    EXPECT_EQ(stats(stream).n_past, 0);
    EXPECT_EQ(eliza_inference_detokenize(context.get(), bad, 3, 0, 0, nullptr, 0, nullptr), ELIZA_ERR_INVALID_ARG);
}

TEST_F(BadInput, APromptLongerThanTheContextLeavesTheStreamUnchanged) {
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6, 7});
    const std::vector<int32_t> huge(300, 5);
    EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), huge.data(), huge.size(), error.out()),
              ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(error.text(),
              "context full: a prompt of 300 tokens after 3 does not fit the context of 256 (option n_ctx)");
    EXPECT_EQ(stats(stream).n_past, 3);
    EXPECT_EQ(pull(stream, 1).status, 0);
}

TEST_F(BadInput, AFullContextEndsTheGenerationAfterAllItsTokens) {
    ASSERT_EQ(eliza_inference_set_option(context.get(), "strategy", "token-by-token", nullptr), 0);
    const StreamHandle slow = open(context);
    prefill(slow, std::vector<int32_t>(250, 5));
    set_trie(slow, payload({{"long", std::vector<int32_t>(400, 300)}}), ELIZA_TRIE_ARGMAX);
    const Output output = pull(slow);
    EXPECT_EQ(output.status, ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(output.error.find("context full: no room for 1 more tokens after 256"), 0u) << output.error;
    EXPECT_EQ(output.tokens.size(), 7u);  // six are decoded; the seventh is selected from the sixth one's logits
    EXPECT_EQ(stats(slow).finish_reason, ELIZA_FINISH_CONTEXT_FULL);
    EXPECT_EQ(eliza_inference_llm_stream_reset(slow.get()), 0);
    prefill(slow, {5, 6});
    EXPECT_EQ(pull(slow, 1).status, 0);
}

TEST_F(BadInput, IdleSlotsMakeRoom) {
    for (int i = 0; i < 2; ++i) {
        const StreamHandle stream = open(context);
        prefill(stream, std::vector<int32_t>(200, 5 + i));
    }
    const StreamHandle stream = open(context);
    prefill(stream, std::vector<int32_t>(250, 9));
    EXPECT_EQ(stats(stream).n_past, 250);
}

TEST_F(BadInput, ASlotHasOneStream) {
    eliza_inference_set_option(context.get(), "slot_wait_ms", "0", nullptr);
    eliza_llm_stream_config_t cfg = config();
    cfg.slot_id = 1;
    StreamHandle first = open(context, cfg);
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "slot 1 is in use by another open stream (option slot_wait_ms)");
    cfg.slot_id = 2;
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "slot_id: expected -1 (any) or 0 to 1 (option n_slots), got 2");
    const StreamHandle second = open(context);
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), nullptr, error.out()), nullptr);
    EXPECT_EQ(error.text(), "all 2 slots are in use by open streams (options n_slots, slot_wait_ms)");
    first.reset();
    EXPECT_NE(open(context), nullptr);
}

TEST_F(BadInput, BadConfigurationsAreRejected) {
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_k = "q7";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(),
              "cache_type_k: expected one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1, got \"q7\"");
    cfg = config();
    cfg.gbnf_grammar = "root ::= (";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "gbnf_grammar: expecting ')' at ");
    cfg.gbnf_grammar = "root ::= other";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "gbnf_grammar: rule \"other\" is used and not defined");
    cfg.gbnf_grammar = "# only this\n other ::= \"a\"";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "gbnf_grammar has no rule \"root\"");
    cfg.gbnf_grammar = "root ::= root \"a\" | \"b\"";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_NE(error.text().find("left recursion"), std::string::npos) << error.text();
    cfg = config();
    cfg.max_tokens = -1;
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    for (int i = 0; i < 3; ++i) {  // no rejected configuration has kept a slot
        EXPECT_NE(open(context), nullptr);
    }
}

TEST_F(BadInput, NanAndInfinityAreRejected) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        for (float eliza_llm_stream_config_t::*field :
             {&eliza_llm_stream_config_t::temperature, &eliza_llm_stream_config_t::top_p,
              &eliza_llm_stream_config_t::repeat_penalty}) {
            eliza_llm_stream_config_t cfg = config();
            cfg.*field = bad;
            EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
            EXPECT_NE(error.text().find("not a finite number"), std::string::npos);
        }
    }
    eliza_llm_stream_config_t cfg = config();
    cfg.temperature = 1e-40f;  // treated as greedy
    const StreamHandle cold = open(context, cfg), greedy = open(context);
    prefill(cold, {5, 6, 7});
    prefill(greedy, {5, 6, 7});
    EXPECT_EQ(pull(cold, 5).tokens, pull(greedy, 5).tokens);
}

TEST_F(BadInput, OptionsCanBeSetAfterAFailedOpen) {
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = "root ::= (";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    ASSERT_EQ(eliza_inference_set_option(context.get(), "n_slots", "1", error.out()), 0) << error.text();
    eliza_inference_set_option(context.get(), "slot_wait_ms", "0", nullptr);
    const StreamHandle only = open(context);
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), nullptr, error.out()), nullptr);
    EXPECT_EQ(error.text(), "all 1 slots are in use by open streams (options n_slots, slot_wait_ms)");
}

TEST_F(BadInput, AnySlotTakesTheHighestSlotIdFirst) {
    const StreamHandle any = open(context);
    eliza_llm_stream_config_t cfg = config();
    cfg.slot_id = 0;
    const StreamHandle named = open(context, cfg);
}

TEST_F(BadInput, AResetStreamMakesRoomForOthers) {
    const StreamHandle first = open(context), second = open(context);
    prefill(first, std::vector<int32_t>(200, 5));
    ASSERT_EQ(eliza_inference_llm_stream_reset(first.get()), 0);
    prefill(second, std::vector<int32_t>(200, 6));
    EXPECT_EQ(stats(second).n_past, 200);
}

TEST_F(BadInput, AnAbsurdTokenCountIsRejectedUnread) {
    const StreamHandle stream = open(context);
    const int32_t token = 5;
    for (const size_t n : {SIZE_MAX, SIZE_MAX / 4, size_t(1) << 40}) {
        EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), &token, n, error.out()), ELIZA_ERR_CONTEXT_FULL);
        EXPECT_NE(error.text().find("does not fit the context of 256"), std::string::npos) << error.text();
    }
}

TEST_F(BadInput, TextThatIsNotUtf8IsTokenizedOrRejected) {
    for (const std::string & text : {std::string("\xF4\x90\x80\x80"), std::string("\xFF\xFE"), std::string("a\xC3")}) {
        int * tokens = nullptr;
        size_t n = 0;
        const int status =
            eliza_inference_tokenize(context.get(), text.data(), text.size(), 0, 0, &tokens, &n, error.out());
        EXPECT_TRUE(status == 0 || status == ELIZA_ERR_INVALID_ARG) << status << error.text();
        eliza_inference_free_tokens(tokens);
    }
}

TEST_F(BadInput, AQuantizedCacheWithoutFlashAttentionIsRejected) {
    ASSERT_EQ(eliza_inference_set_option(context.get(), "flash_attn", "off", nullptr), 0);
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_v = "q8_0";
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(error.text(), "cache_type_v: q8_0 needs flash attention, but option flash_attn is off");
}

TEST_F(BadInput, AWaitingStepIsNotFinalAfterTheGenerationResumes) {
    eliza_llm_stream_config_t cfg = config();
    cfg.max_tokens = 1;
    cfg.gbnf_grammar = long_text_grammar;
    const StreamHandle stream = open(context, cfg);
    prefill(stream, {5, 6, 7});
    EXPECT_EQ(pull(stream, 1, 1).status, ELIZA_ERR_TEXT_CAP);  // does not fit, and remains available
    prefill(stream, {8});
    const Output output = pull(stream, 1);
    EXPECT_EQ(output.status, 0);
    EXPECT_EQ(output.tokens.size(), 1u);
    EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_NONE);
}

TEST_F(BadInput, TrieModesAndPayloadsAreChecked) {
    const StreamHandle stream = open(context);
    const std::string good = payload({{"A", {300}}});
    for (const int mode : {3, 7, -1, 0x200, 0x103}) {
        EXPECT_EQ(eliza_inference_set_token_trie(stream.get(), good.data(), good.size(), mode), ELIZA_ERR_INVALID_ARG)
            << mode;
    }
    // The length counts, not a NUL: a truncated payload is rejected.
    EXPECT_EQ(eliza_inference_set_token_trie(stream.get(), good.data(), good.size() - 1, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(stats(stream).trie_active, 0);
    EXPECT_EQ(stats(stream).spans, 0);
}

TEST_F(BadInput, ACallFromInsideTheCallbackFails) {
    struct Nested {
        EliLlmStream * stream;
        int status = 0;
    } nested;
    const StreamHandle stream = open(context);
    nested.stream = stream.get();
    prefill(stream, {5, 6, 7});
    const auto call_back = [](int32_t, const char *, void * user) {
        auto & n = *static_cast<Nested *>(user);
        n.status = eliza_inference_llm_stream_reset(n.stream);
        return 1;
    };
    EXPECT_EQ(eliza_inference_llm_stream_generate(stream.get(), 0, call_back, &nested, error.out()),
              ELIZA_ERR_CANCELLED);
    EXPECT_EQ(nested.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(pull(stream, 1).status, 0);
}

TEST_F(BadInput, CloseFromInsideTheCallbackEndsTheGeneration) {
    EliLlmStream * stream = eliza_inference_llm_stream_open(context.get(), nullptr, error.out());
    const int32_t tokens[] = {5, 6, 7};
    ASSERT_EQ(eliza_inference_llm_stream_prefill(stream, tokens, 3, nullptr), 0);
    const auto call_back = [](int32_t, const char *, void * user) {
        eliza_inference_llm_stream_close(static_cast<EliLlmStream *>(user));
        return 0;
    };
    EXPECT_EQ(eliza_inference_llm_stream_generate(stream, 0, call_back, stream, error.out()), ELIZA_ERR_CANCELLED);
    const StreamHandle first = open(context), second = open(context);  // the closed stream's slot is free again
}

TEST_F(BadInput, ALeafNameThatDoesNotFitIsNotTruncated) {
    const StreamHandle stream = open(context);
    prefill(stream, {5});
    set_trie(stream, payload({{"REMINDER", {300}}}), ELIZA_TRIE_STOP_AT_LEAF);
    pull(stream);
    char name[9] = "untouch";
    EXPECT_EQ(eliza_inference_token_trie_leaf(stream.get(), name, 8, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(name, "untouch");
    EXPECT_STREQ(eliza_inference_last_error(stream.get()), "cap: expected room for the leaf's name, 9 bytes, got 8");
    EXPECT_EQ(eliza_inference_token_trie_leaf(stream.get(), name, 9, nullptr), 0);
    EXPECT_STREQ(name, "REMINDER");
}

TEST_F(BadInput, AShorterStatsStructIsNotOverrun) {
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    int64_t fields[2] = {-1, -1};
    EXPECT_EQ(eliza_inference_llm_stream_stats(stream.get(), reinterpret_cast<eliza_llm_stream_stats_t *>(fields), 8),
              0);
    EXPECT_EQ(fields[0], 2);
    EXPECT_EQ(fields[1], -1);
}

TEST_F(BadInput, VoiceRegionsAreNotImplemented) {
    EXPECT_EQ(eliza_inference_mmap_acquire(context.get(), "tts", error.out()), ELIZA_ERR_NOT_IMPLEMENTED);
    EXPECT_EQ(eliza_inference_mmap_acquire(context.get(), "smell", error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_mmap_acquire(context.get(), "text", error.out()), 0);
    EXPECT_EQ(eliza_inference_mmap_evict(context.get(), "text", error.out()), 0);
    EXPECT_FALSE(tokenize(context, "loads again").empty());
}

class BadModelFiles : public testing::Test {
protected:
    std::filesystem::path directory = own_folder("bad-models");
    ErrorText error;

    void SetUp() override {
        std::filesystem::remove_all(directory);
        std::filesystem::create_directories(directory / "text");
    }
    void TearDown() override { std::filesystem::remove_all(directory); }

    std::string write(const std::string & name, const std::string & bytes) {
        const auto path = directory / name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path.string();
    }
    std::string create_error(const std::string & path) {
        EXPECT_EQ(eliza_inference_create(path.c_str(), error.out()), nullptr);
        return error.text();
    }
};

TEST_F(BadModelFiles, AreNamed) {
    EXPECT_EQ(create_error("/no/such/model.gguf"), "no such file or directory: /no/such/model.gguf");
    const std::string empty = write("empty.gguf", "");
    EXPECT_EQ(create_error(empty), empty + " is not a GGUF file: it is empty");
    const std::string text = write("text.gguf", "not a model");
    EXPECT_EQ(create_error(text), text + " is not a GGUF file: it does not begin with the letters GGUF");
    EXPECT_EQ(create_error(directory.string()), "no model in " + (directory / "text").string() +
                                                    " (expected *.gguf, other than mmproj, tokenizer or codec)");
}

TEST_F(BadModelFiles, ATruncatedOneFailsWhenItLoads) {
    std::ifstream model(model_path(), std::ios::binary);
    std::string bytes(200000, '\0');
    model.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const std::string cut = write("cut.gguf", bytes);
    const ContextHandle context(eliza_inference_create(cut.c_str(), error.out()), eliza_inference_destroy);
    ASSERT_NE(context, nullptr) << error.text();
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), nullptr, error.out()), nullptr);
    EXPECT_EQ(error.text().find("cannot load the model " + cut + ": "), 0u) << error.text();
}

TEST_F(BadModelFiles, ABundlesModelIsFoundNextToItsCompanions) {
    std::filesystem::copy_file(model_path(), directory / "text" / "model.gguf");
    write("text/a-mmproj.gguf", "GGUF");
    write("text/a-tokenizer.gguf", "GGUF");
    const ContextHandle context(eliza_inference_create(directory.string().c_str(), error.out()),
                                eliza_inference_destroy);
    ASSERT_NE(context, nullptr) << error.text();
    EXPECT_FALSE(tokenize(context, "hello").empty());
}

// llama.cpp ends the process if a batch has less room than there are sequences.
TEST_F(BadInput, TheSmallestSizesWork) {
    for (const auto & options : std::vector<std::map<std::string, std::string>>{{{"n_ctx", "1"}},
                                                                                {{"n_ctx", "33"}, {"n_slots", "64"}},
                                                                                {{"n_batch", "1"}},
                                                                                {{"n_batch", "8"}, {"n_slots", "1"}},
                                                                                {{"n_ctx", "1"}, {"n_batch", "1"}}}) {
        const ContextHandle small = create(options);
        const StreamHandle stream = open(small);
        prefill(stream, {30, 31, 32});
        set_trie(stream, payload_of(small, action_names), ELIZA_TRIE_STOP_AT_LEAF);
        EXPECT_EQ(pull(stream).status, 1);
        EXPECT_NE(leaf(stream), "");
    }
}

}  // namespace
}  // namespace eliza::test
