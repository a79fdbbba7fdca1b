#include <algorithm>
#include <cmath>

#include "test_session.h"

namespace eliza::test {
namespace {

class StreamAbi : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "1024"}});
    std::vector<int32_t> prompt_tokens = chat_prompt(context, "Can you set a reminder for me?");

    StreamHandle prompted(const eliza_llm_stream_config_t & cfg = config()) {
        StreamHandle stream = open(context, cfg);
        prefill(stream, prompt_tokens);
        return stream;
    }
};

TEST_F(StreamAbi, NextAndGenerateGiveTheSameTokensAndText) {
    const Output pulled = pull(prompted(), 40);
    const Output pushed = push(prompted(), 40);
    EXPECT_FALSE(pulled.tokens.empty());
    EXPECT_EQ(pulled.tokens, pushed.tokens);
    EXPECT_EQ(pulled.text, pushed.text);
}

TEST_F(StreamAbi, GenerateResumesWhereItStopped) {
    const Output whole = push(prompted(), 30);
    const StreamHandle stream = prompted();
    Output parts = push(stream, 10);
    const Output rest = push(stream, 20);
    parts.tokens.insert(parts.tokens.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(parts.tokens, whole.tokens);
    EXPECT_EQ(parts.text + rest.text, whole.text);
}

TEST_F(StreamAbi, MaxTokensEndsTheGenerationUntilTheNextPrefill) {
    eliza_llm_stream_config_t cfg = config();
    cfg.max_tokens = 5;
    cfg.gbnf_grammar = long_text_grammar;
    const StreamHandle stream = prompted(cfg);
    const Output first = pull(stream);
    EXPECT_EQ(first.tokens.size(), 5u);
    EXPECT_EQ(first.status, 1);
    EXPECT_EQ(pull(stream).tokens.size(), 0u);
    EXPECT_EQ(stats(stream).generated_tokens, 5);
    EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_LENGTH);
    prefill(stream, prompt_tokens);
    EXPECT_EQ(pull(stream).tokens.size(), 5u);
}

TEST_F(StreamAbi, ATokenThatDoesNotFitIsReturnedByTheNextCall) {
    const Output roomy = pull(prompted(), 30);
    const StreamHandle stream = prompted();
    Output tight;
    int n_refused = 0;
    while (tight.tokens.size() < roomy.tokens.size()) {
        const size_t left = roomy.tokens.size() - tight.tokens.size();
        const Output some = pull(stream, left, n_refused % 2 == 0 ? 2 : 256);  // 2: room for one byte of text
        tight.tokens.insert(tight.tokens.end(), some.tokens.begin(), some.tokens.end());
        tight.text += some.text;
        if (some.status >= 0) break;
        EXPECT_EQ(some.status, ELIZA_ERR_TEXT_CAP);
        EXPECT_NE(some.error.find("text_cap: expected room"), std::string::npos) << some.error;
        ++n_refused;
    }
    EXPECT_GT(n_refused, 0);
    EXPECT_EQ(tight.tokens, roomy.tokens);
    EXPECT_EQ(tight.text, roomy.text);
}

TEST_F(StreamAbi, EveryChoiceIsOneOfTheLeaves) {
    const std::string json = payload_of(context, action_names);
    for (const int mode : {ELIZA_TRIE_ARGMAX, ELIZA_TRIE_SAMPLE}) {
        for (int round = 0; round < 10; ++round) {
            eliza_llm_stream_config_t cfg = config();
            cfg.temperature = 2.0f;
            const StreamHandle stream = prompted(cfg);
            set_trie(stream, json, mode | ELIZA_TRIE_STOP_AT_LEAF);
            const Output output = pull(stream);
            EXPECT_EQ(output.status, 1);
            EXPECT_EQ(output.text, leaf(stream));
            EXPECT_NE(std::find(action_names.begin(), action_names.end(), output.text), action_names.end())
                << output.text;
            EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_LEAF);
        }
    }
}

TEST_F(StreamAbi, SkippingAheadGivesTheSameTokensAndProbability) {
    context = create({{"n_threads", "1"}}, f32_model_path());
    double logprob[2];
    Output output[2];
    eliza_llm_stream_stats_t count[2];
    const char * strategies[] = {"token-by-token", "skip-ahead"};
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(eliza_inference_set_option(context.get(), "strategy", strategies[i], nullptr), 0);
        const StreamHandle stream = prompted(full_precision_config());
        set_trie(stream, payload_of(context, action_names), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
        output[i] = pull(stream);
        leaf(stream, &logprob[i]);
        count[i] = stats(stream);
    }
    EXPECT_EQ(output[0].tokens, output[1].tokens);
    EXPECT_NEAR(logprob[0], logprob[1], 1e-3);
    EXPECT_EQ(count[0].forward_passes, count[1].forward_passes + count[1].forward_passes_saved);
    EXPECT_EQ(count[0].forward_passes_saved, 0);
    EXPECT_EQ(count[0].decisions, count[1].decisions);
}

TEST_F(StreamAbi, ASingleLeafNeedsNoPassAndHasProbabilityOne) {
    const StreamHandle stream = prompted();
    set_trie(stream, payload_of(context, {"CREATE_REMINDER"}), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    EXPECT_EQ(pull(stream).text, "CREATE_REMINDER");
    double logprob = -1.0;
    EXPECT_EQ(leaf(stream, &logprob), "CREATE_REMINDER");
    EXPECT_EQ(logprob, 0.0);
    EXPECT_EQ(stats(stream).forward_passes, 1);
    EXPECT_EQ(stats(stream).decisions, 0);
}

TEST_F(StreamAbi, WithoutTheFlagTheGenerationContinuesAfterTheLeaf) {
    const StreamHandle stream = prompted();
    set_trie(stream, payload_of(context, {"IGNORE"}), ELIZA_TRIE_ARGMAX);
    const size_t leaf_size = tokenize(context, "IGNORE").size();
    const Output output = pull(stream, leaf_size);
    EXPECT_EQ(output.text, "IGNORE");
    EXPECT_EQ(output.status, 0);
    EXPECT_EQ(stats(stream).trie_active, 0);

    // The continuation is the same as after a prompt with the same text.
    const StreamHandle reference = open(context);
    std::vector<int32_t> tokens = prompt_tokens;
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    prefill(reference, tokens);
    EXPECT_EQ(pull(stream, 5).tokens, pull(reference, 5).tokens);
}

TEST_F(StreamAbi, TheWholeVocabularyDecidesWhetherToEndOnAPrefixLeaf) {
    // After `wanted`, the model prefers two[1]. This token continues the span in the first trie, and ends it in the
    // second.
    const int32_t wanted = pull(prompted(), 1).tokens.at(0);
    const StreamHandle probe = prompted();
    const std::vector<int32_t> two = pull(probe, 2).tokens;
    ASSERT_EQ(two.size(), 2u);
    const int32_t other = two[1] == 300 ? 301 : 300;

    const StreamHandle walks_on = prompted();
    set_trie(walks_on, payload({{"short", {wanted}}, {"long", two}}), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    EXPECT_EQ(pull(walks_on).tokens, two);
    EXPECT_EQ(leaf(walks_on), "long");

    const StreamHandle ends = prompted();
    set_trie(ends, payload({{"short", {wanted}}, {"long", {wanted, other}}}),
             ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    EXPECT_EQ(pull(ends).tokens, std::vector<int32_t>{wanted});
    EXPECT_EQ(leaf(ends), "short");

    const StreamHandle goes_on = prompted();
    set_trie(goes_on, payload({{"short", {wanted}}, {"long", {wanted, other}}}), ELIZA_TRIE_ARGMAX);
    EXPECT_EQ(pull(goes_on, 2).tokens, two);
    EXPECT_EQ(leaf(goes_on), "short");
}

TEST_F(StreamAbi, TheProbabilityIsTheSoftmaxOfPlainLogitsOverTheAllowedTokens) {
    const auto model = load_model();
    const auto logits_after = [&](const std::vector<int32_t> & tokens) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 256;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        const llama_context_ptr plain(llama_init_from_model(model->get(), params));
        std::vector<int32_t> copy = tokens;
        EXPECT_EQ(llama_decode(plain.get(), llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()))), 0);
        const float * row = llama_get_logits_ith(plain.get(), -1);
        return std::vector<float>(row, row + model->n_vocab());
    };
    const auto probability = [&](const std::vector<int32_t> & tokens, const std::vector<int32_t> & legal,
                                 int32_t token) {
        const std::vector<float> row = logits_after(tokens);
        double sum = 0.0;
        for (const int32_t id : legal) sum += std::exp(static_cast<double>(row[static_cast<size_t>(id)]));
        return std::exp(static_cast<double>(row[static_cast<size_t>(token)])) / sum;
    };
    const StreamHandle stream = prompted();
    set_trie(stream, payload({{"a", {300, 301}}, {"b", {300, 302}}, {"c", {310, 301}}, {"d", {310, 302}}}),
             ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    const std::vector<int32_t> chosen = pull(stream).tokens;
    double logprob = 0.0;
    leaf(stream, &logprob);
    ASSERT_EQ(chosen.size(), 2u);
    std::vector<int32_t> tokens = prompt_tokens;
    double expected = probability(tokens, {300, 310}, chosen[0]);
    tokens.push_back(chosen[0]);
    expected *= probability(tokens, {301, 302}, chosen[1]);
    EXPECT_NEAR(std::exp(logprob), expected, 0.02);
}

TEST_F(StreamAbi, HeldBackBytesAreReturnedWhenTheContextIsFull) {
    // The first bytes of an emoji as byte tokens, and then no room for the rest.
    const ContextHandle small = create({{"n_ctx", "256"}});
    const std::vector<int32_t> emoji = tokenize(small, "\xF0\x9F\xA6\x84");
    ASSERT_EQ(emoji.size(), 4u) << "the vocabulary has a token for this character";
    const StreamHandle stream = open(small);
    prefill(stream, std::vector<int32_t>(255, 50));
    set_trie(stream, payload({{"cut", {emoji[0], emoji[1]}}}), ELIZA_TRIE_ARGMAX);
    const Output output = pull(stream);
    EXPECT_EQ(output.status, ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(output.text, "");
    const Output rest = pull(stream);
    EXPECT_EQ(rest.status, 1);
    EXPECT_EQ(rest.text, "\xEF\xBF\xBD");
}

TEST_F(StreamAbi, TheSpanEndsAtItsLimit) {
    const ContextHandle limited = create({{"span_limit", "3"}});
    const StreamHandle stream = open(limited);
    prefill(stream, prompt_tokens);
    set_trie(stream, payload({{"long", {300, 301, 302, 303, 304, 305}}}), ELIZA_TRIE_ARGMAX);
    EXPECT_EQ(pull(stream, 3).tokens, (std::vector<int32_t>{300, 301, 302}));
    EXPECT_EQ(stats(stream).span_limit_hits, 1);
    EXPECT_EQ(stats(stream).trie_active, 0);
    EXPECT_EQ(leaf(stream), "");
}

TEST_F(StreamAbi, AForeignModelIdIsRejected) {
    const ContextHandle named = create({{"model_id", "mine"}});
    const StreamHandle stream = open(named);
    prefill(stream, prompt_tokens);
    set_trie(stream, payload({{"A", {300}}}, "mine"), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    const std::string foreign = payload({{"B", {301}}}, "theirs");
    EXPECT_EQ(eliza_inference_set_token_trie(stream.get(), foreign.data(), foreign.size(), 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(eliza_inference_last_error(stream.get()),
                 "modelId: expected \"mine\" (option model_id), got \"theirs\"");
    EXPECT_EQ(stats(stream).trie_active, 1);
    EXPECT_EQ(pull(stream).tokens, std::vector<int32_t>{300});
    EXPECT_EQ(leaf(stream), "A");
}

TEST_F(StreamAbi, ClearEndsTheSpan) {
    const Output free = pull(prompted(), 4);
    const StreamHandle stream = prompted();
    set_trie(stream, payload({{"A", {300, 301}}}), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    eliza_inference_clear_token_trie(stream.get());
    EXPECT_EQ(pull(stream, 4).tokens, free.tokens);
    EXPECT_EQ(leaf(stream), "");
}

TEST_F(StreamAbi, ANewStreamReusesThePromptInItsSlot) {
    const Output first = pull(prompted(), 10);
    const StreamHandle stream = prompted();
    const auto count = stats(stream);
    EXPECT_EQ(count.prompt_tokens_reused, count.prompt_tokens - 1);  // the last one is decoded for its logits
    EXPECT_EQ(pull(stream, 10).tokens, first.tokens);
}

TEST_F(StreamAbi, ResetKeepRemovesTheLaterTokens) {
    const StreamHandle stream = prompted();
    const Output first = pull(stream, 8);
    EXPECT_EQ(eliza_inference_llm_stream_reset_keep(stream.get(), static_cast<int32_t>(prompt_tokens.size())),
              static_cast<int>(prompt_tokens.size()));
    EXPECT_EQ(pull(stream, 8).tokens, first.tokens);
    EXPECT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
    EXPECT_EQ(stats(stream).n_past, 0);
    prefill(stream, prompt_tokens);
    EXPECT_EQ(pull(stream, 8).tokens, first.tokens);
    EXPECT_EQ(eliza_inference_llm_stream_reset_keep(stream.get(), 1 << 30), stats(stream).n_past);
}

TEST_F(StreamAbi, APromptMayBePassedInPieces) {
    const Output whole = pull(prompted(), 8);
    const StreamHandle stream = open(context);
    const auto middle = prompt_tokens.begin() + static_cast<long>(prompt_tokens.size() / 2);
    prefill(stream, {prompt_tokens.begin(), middle});
    prefill(stream, {});
    prefill(stream, {middle, prompt_tokens.end()});
    EXPECT_EQ(pull(stream, 8).tokens, whole.tokens);
}

TEST_F(StreamAbi, RepeatPenaltyAffectsChoices) {
    std::map<std::string, std::vector<int32_t>> leaves;
    for (int32_t token = 300; token < 340; ++token) {
        if (std::find(prompt_tokens.begin(), prompt_tokens.end(), token) == prompt_tokens.end()) {
            leaves[std::to_string(token)] = {token};
        }
    }
    const auto choose_after = [&](int32_t seen, float repeat_penalty) {
        eliza_llm_stream_config_t cfg = config();
        cfg.repeat_penalty = repeat_penalty;
        const StreamHandle stream = open(context, cfg);
        std::vector<int32_t> tokens = prompt_tokens;
        tokens.insert(tokens.begin() + 1, seen);
        prefill(stream, tokens);
        set_trie(stream, payload(leaves), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
        return pull(stream).tokens.at(0);
    };
    // A penalty far below 1 is a reward: the token from the prompt wins if its logit is positive. For the others
    // nothing changes.
    int n_changed = 0;
    for (const auto & [name, tokens] : leaves) {
        const int32_t seen = tokens[0];
        const int32_t plain = choose_after(seen, 1.0f);
        const int32_t rewarded = choose_after(seen, 1e-4f);
        if (rewarded != plain) {
            EXPECT_EQ(rewarded, seen);
            ++n_changed;
        }
    }
    EXPECT_GT(n_changed, 0);
}

TEST_F(StreamAbi, SamplingFollowsItsSeed) {
    context = create({{"n_threads", "1"}}, f32_model_path());
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.temperature = 1.5f;
    const auto generate = [&](const char * seed) {
        EXPECT_EQ(eliza_inference_set_option(context.get(), "seed", seed, nullptr), 0);
        return pull(prompted(cfg), 20).tokens;
    };
    EXPECT_EQ(generate("1"), generate("1"));
    EXPECT_NE(generate("1"), generate("2"));
}

TEST_F(StreamAbi, DescribesItselfAndItsModel) {
    ErrorText error, json;
    ASSERT_EQ(eliza_inference_describe(context.get(), json.out(), error.out()), 0) << error.text();
    EXPECT_NE(json.text().find("\"abi_version\":\"12\""), std::string::npos);
    EXPECT_NE(json.text().find("\"n_vocab\":"), std::string::npos);
    ASSERT_EQ(eliza_inference_describe(nullptr, json.out(), error.out()), 0);
    EXPECT_EQ(json.text().find("\"model\""), std::string::npos);
}

TEST_F(StreamAbi, TokenizesAndDetokenizes) {
    const std::string text = "CREATE_REMINDER for six";
    const std::vector<int32_t> tokens = tokenize(context, text);
    char out[64];
    const int size = eliza_inference_detokenize(context.get(), tokens.data(), tokens.size(), 0, 0, nullptr, 0, nullptr);
    EXPECT_EQ(size, static_cast<int>(text.size()));
    EXPECT_EQ(eliza_inference_detokenize(context.get(), tokens.data(), tokens.size(), 0, 0, out, sizeof out, nullptr),
              size);
    EXPECT_STREQ(out, text.c_str());
    EXPECT_TRUE(tokenize(context, "").empty());
}

TEST(BestLeaf, IsFollowedEvenIfThePromptContinuesInsideTheSpan) {
    const ContextHandle context = create();
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "Remind me at nine"));
    set_trie(stream, payload_of(context, {"CREATE_REMINDER", "CREATE_REMINDER_LIST", "CREATE_NOTE"}),
             ELIZA_TRIE_BEST_LEAF | ELIZA_TRIE_STOP_AT_LEAF);
    const std::vector<int32_t> begun = pull(stream, 1).tokens;
    prefill(stream, tokenize(context, " (go on) "));
    const Output rest = pull(stream);
    EXPECT_EQ(rest.status, 1) << rest.error;
    std::vector<int32_t> all = begun;
    all.insert(all.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(all, tokenize(context, leaf(stream)));
}

}  // namespace
}  // namespace eliza::test
