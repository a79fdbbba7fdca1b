// The log-probabilities of generated tokens, compared with the log-softmax of llama.cpp's own logits.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "llama-cpp.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Entry = eliza_token_logprob_t;

// Returns the log-softmax after every token, computed in a separate context.
class Reference {
public:
    Reference() {
        llama_model_params model_params = llama_model_default_params();
        model_.reset(llama_model_load_from_file(f32_model_path().c_str(), model_params));
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 256;
        params.n_threads = params.n_threads_batch = 1;
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        context_.reset(llama_init_from_model(model_.get(), params));
    }

    std::vector<double> behind(std::vector<llama_token> text) {
        llama_memory_clear(llama_get_memory(context_.get()), true);
        EXPECT_EQ(llama_decode(context_.get(), llama_batch_get_one(text.data(), static_cast<int32_t>(text.size()))), 0);
        const float * row = llama_get_logits_ith(context_.get(), -1);
        const int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
        const double largest = *std::max_element(row, row + n);
        const double total = std::accumulate(
            row, row + n, 0.0, [&](double sum, float logit) { return sum + std::exp(double(logit) - largest); });
        std::vector<double> logprobs(row, row + n);
        for (double & value : logprobs) value -= largest + std::log(total);
        return logprobs;
    }

private:
    llama_model_ptr model_;
    llama_context_ptr context_;
};

class TokenLogprobsTest : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}, {"n_ctx", "512"}}, f32_model_path());

    int set(const StreamHandle & stream, int n_top) {
        return eliza_inference_llm_stream_set_logprobs(stream.get(), n_top, error.out());
    }
    std::vector<Entry> take(const StreamHandle & stream, size_t n_tokens, int n_top) {
        std::vector<Entry> entries(n_tokens * static_cast<size_t>(n_top + 1));
        EXPECT_EQ(eliza_inference_llm_stream_take_logprobs(stream.get(), entries.data(), entries.size(), error.out()),
                  static_cast<int>(n_tokens))
            << error.text();
        return entries;
    }

    ErrorText error;
};

TEST_F(TokenLogprobsTest, AreTheLogSoftmaxOfEachRow) {
    constexpr int n_top = 5;
    Reference reference;
    std::vector<int32_t> text = {5, 60, 71, 8};
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.max_tokens = 12;
    cfg.temperature = 0.9f;  // the reported values do not depend on the sampling
    const StreamHandle stream = open(context, cfg);
    prefill(stream, text);
    ASSERT_EQ(set(stream, n_top), 0) << error.text();
    const Output output = pull(stream);
    const std::vector<Entry> entries = take(stream, output.tokens.size(), n_top);
    for (size_t i = 0; i < output.tokens.size(); ++i) {
        const std::vector<double> expected = reference.behind(text);
        const Entry * of_token = &entries[i * (n_top + 1)];
        EXPECT_EQ(of_token[0].token, output.tokens[i]);
        EXPECT_NEAR(of_token[0].logprob, expected[static_cast<size_t>(output.tokens[i])], 1e-4);
        std::vector<int32_t> order(expected.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(),
                  [&](int32_t a, int32_t b) { return expected[size_t(a)] > expected[size_t(b)]; });
        for (int k = 0; k < n_top; ++k) {
            EXPECT_NEAR(of_token[1 + k].logprob, expected[static_cast<size_t>(order[size_t(k)])], 1e-4);
            EXPECT_NEAR(of_token[1 + k].logprob, expected[static_cast<size_t>(of_token[1 + k].token)], 1e-4);
            if (k > 0) {
                EXPECT_LE(of_token[1 + k].logprob, of_token[k].logprob);
            }
        }
        text.push_back(output.tokens[i]);
    }
    EXPECT_TRUE(take(stream, 0, n_top).empty()) << "a second call returns nothing";
}

TEST_F(TokenLogprobsTest, AreReportedForDraftedTokensToo) {
    const std::vector<int32_t> prompt = {5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8};
    std::vector<std::vector<Entry>> found;
    for (const int32_t draft : {0, 8}) {
        eliza_llm_stream_config_t cfg = full_precision_config();
        cfg.max_tokens = 40;
        cfg.draft_min = cfg.draft_max = draft;
        if (draft > 0) cfg.draft_min = 1;
        const StreamHandle stream = open(context, cfg);
        prefill(stream, prompt);
        ASSERT_EQ(set(stream, 2), 0);
        const size_t n = pull(stream).tokens.size();
        found.push_back(take(stream, n, 2));
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (size_t i = 0; i < found[0].size(); ++i) {
        EXPECT_EQ(found[0][i].token, found[1][i].token);
        EXPECT_NEAR(found[0][i].logprob, found[1][i].logprob, 1e-4);
    }
}

TEST_F(TokenLogprobsTest, ATokenOfALabelHasNone) {
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    ASSERT_EQ(set(stream, 1), 0);
    const std::string json = payload({{"A", {60, 61}}, {"B", {62}}});
    ASSERT_EQ(eliza_inference_set_token_trie(stream.get(), json.data(), json.size(), 0x100), 0);
    const Output output = pull(stream);
    const std::vector<Entry> entries = take(stream, output.tokens.size(), 1);
    EXPECT_EQ(entries[0].token, output.tokens[0]);
    EXPECT_TRUE(std::isnan(entries[0].logprob));
    EXPECT_EQ(entries[1].token, -1);
    EXPECT_TRUE(std::isnan(entries[1].logprob));
}

TEST_F(TokenLogprobsTest, AnEndTokenDoesNotAffectTheNextToken) {
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "Who are you?"));  // it answers in one sentence and then ends
    ASSERT_EQ(set(stream, 0), 0);
    const size_t n = pull(stream).tokens.size();
    eliza_llm_stream_stats_t stats{};
    ASSERT_EQ(eliza_inference_llm_stream_stats(stream.get(), &stats, sizeof stats), 0);
    ASSERT_EQ(stats.finish_reason, ELIZA_FINISH_END);
    take(stream, n, 0);
    const std::string json = payload({{"A", {60, 61}}, {"B", {62}}});
    ASSERT_EQ(eliza_inference_set_token_trie(stream.get(), json.data(), json.size(), 0x100), 0);
    const Output output = pull(stream);
    const std::vector<Entry> entries = take(stream, output.tokens.size(), 0);
    EXPECT_EQ(entries[0].token, output.tokens[0]);
    EXPECT_TRUE(std::isnan(entries[0].logprob));
}

TEST_F(TokenLogprobsTest, AreReportedOnlyForReturnedTokens) {
    const StreamHandle stream = open(context);
    prefill(stream, {5, 60, 71, 8});
    Entry entries[8];
    EXPECT_EQ(eliza_inference_llm_stream_take_logprobs(stream.get(), entries, 8, error.out()), ELIZA_ERR_INVALID_ARG);
    ASSERT_EQ(set(stream, 0), 0);
    ASSERT_EQ(pull(stream, 3).tokens.size(), 3u);
    EXPECT_EQ(eliza_inference_llm_stream_take_logprobs(stream.get(), entries, 2, error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_NE(error.text().find("there are 3 entries"), std::string::npos) << error.text();
    take(stream, 3, 0);
    ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
    EXPECT_EQ(set(stream, -2), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(set(stream, 100000), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(set(stream, -1), 0);
}

}  // namespace
}  // namespace eliza::test
