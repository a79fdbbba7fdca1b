// Speculation with an assistant of Gemma 4, a drafter that reads the model's KV cache, gives the same tokens as no
// speculation.

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "model_file.h"
#include "test_session.h"

namespace eliza::test {
namespace {

constexpr uint32_t model_width = 64, assistant_width = 32, head_width = 32, n_heads = 2, ff_width = 128;

// The words that are not control tokens form a cycle. The logit of a word's successor is next_logit if the layers add
// nothing; the standard deviation of the other logits is logit_std. Each layer adds values of magnitude layer_gain, and
// the embedding has magnitude 8. So both models usually continue the cycle, and sometimes leave it.
constexpr float next_logit = 14.0f, logit_std = 2.5f, layer_gain = 1.2f;

// Adds the rows of an output matrix, for which the hidden state after word i is states[i].
void add_output(ModelFile & file, const std::string & name, const std::vector<std::vector<float>> & states) {
    const size_t width = states.front().size();
    const std::vector<int32_t> types = file.token_types();
    const float pull = next_logit / static_cast<float>(width);
    float * rows = file.add_random(name, {static_cast<int64_t>(width), static_cast<int64_t>(types.size())}, logit_std);
    size_t last = 0;
    for (size_t token = 0; token < types.size(); ++token) {
        float * row = rows + token * width;
        if (types[token] != LLAMA_TOKEN_TYPE_NORMAL) {
            std::fill_n(row, width, 0.0f);
            continue;
        }
        for (size_t i = 0; i < width; ++i) row[i] += pull * states[last][i];
        last = token;
    }
}

void scale_to_magnitude_one(std::vector<float> & values) {
    float sum = 0.0f;
    for (const float value : values) sum += value * value;
    for (float & value : values) value *= std::sqrt(static_cast<float>(values.size()) / sum);
}

void add_layer(ModelFile & file, uint32_t layer, uint32_t width, bool has_cells, bool slides) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const int64_t heads_width = n_heads * head_width;
    file.add_constant(block + "attn_norm.weight", width, 1.0f);
    file.add_random(block + "attn_q.weight", {width, heads_width}, 0.7f);
    file.add_constant(block + "attn_q_norm.weight", head_width, 1.0f);
    if (has_cells) {
        file.add_random(block + "attn_k.weight", {width, heads_width}, 0.7f);
        file.add_random(block + "attn_v.weight", {width, heads_width}, 1.0f);
        file.add_constant(block + "attn_k_norm.weight", head_width, 1.0f);
    }
    file.add_random(block + "attn_output.weight", {heads_width, width}, 1.0f);
    file.add_constant(block + "post_attention_norm.weight", width, layer_gain);
    file.add_constant(block + "layer_output_scale.weight", 1, 1.0f);
    file.add_constant(block + "ffn_norm.weight", width, 1.0f);
    file.add_random(block + "ffn_gate.weight", {width, ff_width}, 1.0f);
    file.add_random(block + "ffn_up.weight", {width, ff_width}, 1.0f);
    file.add_random(block + "ffn_down.weight", {ff_width, width}, 1.0f);
    file.add_constant(block + "post_ffw_norm.weight", width, layer_gain);
    if (!slides && layer < 2) file.add_constant("rope_freqs.weight", head_width / 2, 1.0f);
}

void describe(ModelFile & file, uint32_t width, uint32_t n_layers) {
    file.set("context_length", 1024);
    file.set("embedding_length", width);
    file.set("block_count", n_layers);
    file.set("feed_forward_length", ff_width);
    file.set("attention.head_count", n_heads);
    file.set("attention.head_count_kv", n_heads);
    for (const char * length : {"key_length", "value_length", "key_length_swa", "value_length_swa"}) {
        file.set(std::string("attention.") + length, head_width);
    }
    file.set("rope.dimension_count", head_width);
    file.set("rope.dimension_count_swa", head_width);
    file.set("attention.sliding_window", 32);
    file.set_real("attention.layer_norm_rms_epsilon", 1e-5f);
    std::vector<int8_t> slides(n_layers);
    for (uint32_t layer = 0; layer < n_layers; layer += 2) slides[layer] = 1;
    file.set_array("attention.sliding_window_pattern", GGUF_TYPE_BOOL, slides);
}

// Writes a Gemma 4 and an assistant for it. Both have random weights.
void write_models(const std::string & model_file, const std::string & assistant_file) {
    ModelFile model("gemma4", model_width);
    describe(model, model_width, 4);
    model.set("embedding_length_per_layer_input", 0);
    const auto n_vocab = static_cast<int64_t>(model.token_types().size());
    const float * embedding =
        model.add_random("token_embd.weight", {model_width, n_vocab}, std::sqrt(float{model_width}));
    std::vector<std::vector<float>> states;
    for (int64_t token = 0; token < n_vocab; ++token) {
        states.emplace_back(embedding + token * model_width, embedding + (token + 1) * model_width);
    }
    add_output(model, "output.weight", states);
    model.add_constant("output_norm.weight", model_width, 1.0f);
    for (uint32_t layer = 0; layer < 4; ++layer) add_layer(model, layer, model_width, true, layer % 2 == 0);
    model.write(model_file);

    // The assistant projects the embedding of the last token, and the model's hidden state, to its own width.
    ModelFile assistant("gemma4-assistant", model_width);
    describe(assistant, assistant_width, 2);
    assistant.set("embedding_length_out", model_width);
    assistant.set("nextn_predict_layers", 2);
    float * joint = assistant.add_random("nextn.pre_projection.weight", {2 * model_width, assistant_width}, 1.4f);
    for (std::vector<float> & state : states) {
        std::vector<float> projected(assistant_width);
        for (size_t out = 0; out < assistant_width; ++out) {
            const float * row = joint + out * 2 * model_width;
            for (size_t in = 0; in < model_width; ++in) projected[out] += row[in] * state[in];
        }
        scale_to_magnitude_one(projected);
        state = projected;
    }
    for (size_t out = 0; out < assistant_width; ++out) {
        float * of_hidden = joint + out * 2 * model_width + model_width;
        for (size_t in = 0; in < model_width; ++in) of_hidden[in] *= 0.3f;
    }
    add_output(assistant, "token_embd.weight", states);
    assistant.add_constant("output_norm.weight", assistant_width, 1.0f);
    assistant.add_random("nextn.post_projection.weight", {assistant_width, model_width}, 1.0f);
    for (uint32_t layer = 0; layer < 2; ++layer) add_layer(assistant, layer, assistant_width, false, layer % 2 == 0);
    assistant.write(assistant_file);
}

class Assistant : public testing::Test {
protected:
    static void SetUpTestSuite() { write_models(file_of("gemma4"), file_of("gemma4-assistant")); }
    static void TearDownTestSuite() {
        std::filesystem::remove(file_of("gemma4"));
        std::filesystem::remove(file_of("gemma4-assistant"));
    }
    static std::string file_of(const std::string & architecture) {
        const std::string name = "eliza-" + architecture + "-" + std::to_string(getpid()) + ".gguf";
        return (std::filesystem::temp_directory_path() / name).string();
    }
    static eliza_llm_stream_config_t drafting(int draft_max) {
        static const std::string drafter = file_of("gemma4-assistant");
        eliza_llm_stream_config_t cfg = full_precision_config();
        cfg.draft_min = draft_max > 0 ? 1 : 0;
        cfg.draft_max = draft_max;
        cfg.mtp_drafter_path = draft_max > 0 ? drafter.c_str() : nullptr;
        return cfg;
    }
    std::vector<int32_t> continued(const eliza_llm_stream_config_t & cfg, const std::string & prompt, int n = 60) {
        const StreamHandle stream = open(context, cfg);
        prefill(stream, tokenize(context, prompt, true));
        const Output output = push(stream, n);
        EXPECT_GE(output.status, 0) << output.error;
        counts = stats(stream);
        return output.tokens;
    }

    const std::vector<std::string> prompts = {"Say hello. ", "one two three one two three one",
                                              "The user asks for a reminder at nine tomorrow. Next action: "};
    ContextHandle context = create({{"n_ctx", "1024"}, {"n_threads", "1"}, {"n_slots", "4"}}, file_of("gemma4"));
    eliza_llm_stream_stats_t counts{};
};

TEST_F(Assistant, GivesTheSameTokens) {
    int64_t drafted = 0, accepted = 0;
    for (const std::string & prompt : prompts) {
        const std::vector<int32_t> expected = continued(drafting(0), prompt);
        for (const int draft_max : {1, 3, 8}) {
            EXPECT_EQ(continued(drafting(draft_max), prompt), expected);
            drafted += counts.tokens_drafted;
            accepted += counts.tokens_accepted;
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, drafted);
}

TEST_F(Assistant, GivesTheSameDraws) {
    ASSERT_EQ(eliza_inference_set_option(context.get(), "seed", "7", nullptr), 0);
    eliza_llm_stream_config_t with = drafting(4), without = drafting(0);
    with.temperature = without.temperature = 0.8f;
    for (const std::string & prompt : prompts) {
        EXPECT_EQ(continued(with, prompt), continued(without, prompt));
    }
}

TEST_F(Assistant, FollowsAStreamThatStepsBack) {
    std::vector<std::vector<int32_t>> both;
    for (const int draft_max : {0, 4}) {
        const StreamHandle stream = open(context, drafting(draft_max));
        prefill(stream, tokenize(context, prompts[2], true));
        push(stream, 50);
        eliza_inference_llm_stream_reset_keep(stream.get(), 20);
        prefill(stream, tokenize(context, " and then ", false));
        both.push_back(push(stream, 50).tokens);
    }
    EXPECT_EQ(both[0], both[1]);
}

TEST_F(Assistant, DraftsForEveryThreadInItsOwnSlot) {
    std::vector<std::vector<int32_t>> expected, got(prompts.size() + 1);
    for (const std::string & prompt : prompts) expected.push_back(continued(drafting(0), prompt));
    expected.push_back(expected[0]);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < got.size(); ++i) {
        threads.emplace_back([&, i] {  // the last one does not draft
            const StreamHandle stream = open(context, drafting(i < prompts.size() ? 3 : 0));
            prefill(stream, tokenize(context, prompts[i % prompts.size()], true));
            got[i] = push(stream, 60).tokens;
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(got, expected);
}

TEST_F(Assistant, ContinuesAfterCancelsInPasses) {
    for (const std::string & prompt : prompts) {
        const std::vector<int32_t> expected = continued(drafting(0), prompt);
        const StreamHandle stream = open(context, drafting(3));
        prefill(stream, tokenize(context, prompt, true));
        EXPECT_EQ(push_despite_cancels(stream, expected.size()), expected);
    }
}

TEST_F(Assistant, ContinuesFromASavedSlot) {
    const std::string path = file_of("saved-slot");
    std::vector<std::vector<int32_t>> both;
    for (const int draft_max : {0, 4}) {
        const StreamHandle stream = open(context, drafting(draft_max));
        prefill(stream, tokenize(context, prompts[2], true));
        std::vector<int32_t> told = push(stream, 20).tokens;
        EXPECT_EQ(eliza_inference_llm_stream_save_slot(stream.get(), path.c_str(), nullptr), 0);
        for (int i = 0; i < 2; ++i) {
            const std::vector<int32_t> more = push(stream, 20).tokens;
            told.insert(told.end(), more.begin(), more.end());
            EXPECT_EQ(eliza_inference_llm_stream_restore_slot(stream.get(), path.c_str(), nullptr), 0);
        }
        both.push_back(told);
    }
    EXPECT_EQ(both[0], both[1]);
    std::filesystem::remove(path);
}

TEST_F(Assistant, ContinuesAfterACancelledCall) {
    const std::vector<int32_t> expected = continued(drafting(0), prompts[0]);
    const StreamHandle stream = open(context, drafting(3));
    prefill(stream, tokenize(context, prompts[0], true));
    std::vector<int32_t> tokens = push(stream, 20).tokens;
    eliza_inference_llm_stream_cancel(stream.get());
    EXPECT_EQ(push(stream, 20).status, ELIZA_ERR_CANCELLED);
    const std::vector<int32_t> rest = push(stream, 40).tokens;
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    EXPECT_EQ(tokens, expected);
}

TEST_F(Assistant, OfAnotherModelIsRejected) {
    const ContextHandle other = create({{"n_ctx", "512"}}, f32_model_path());
    const eliza_llm_stream_config_t cfg = drafting(3);
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_open(other.get(), &cfg, error.out()), nullptr);
    EXPECT_NE(error.text().find("the assistant was made for another model: its architecture is gemma4-assistant, the "
                                "model's is llama"),
              std::string::npos)
        << error.text();
}

TEST_F(Assistant, IsNoModelOfItsOwn) {
    const ContextHandle alone = create({{"n_ctx", "512"}}, file_of("gemma4-assistant"));
    ErrorText error;
    const eliza_llm_stream_config_t plain = config();
    EXPECT_EQ(eliza_inference_llm_stream_open(alone.get(), &plain, error.out()), nullptr);
    EXPECT_NE(error.text().find("contains only an assistant: pass it as mtp_drafter_path of the model it was made for"),
              std::string::npos)
        << error.text();
}

}  // namespace
}  // namespace eliza::test
