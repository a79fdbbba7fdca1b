// Models whose graph always computes the logits after every token ("cogvlm"). If only some of the logits are requested,
// llama.cpp returns the logits after the first tokens of the pass instead. The library must return the same results as
// with passes over single tokens.

#include <algorithm>
#include <filesystem>

#include "llama-cpp.h"
#include "model_file.h"
#include "test_session.h"

namespace eliza::test {
namespace {

class EveryRow : public testing::Test {
protected:
    static constexpr int64_t width = 64, ff_width = 128;

    void SetUp() override {
        ModelFile file("cogvlm", width);
        file.set("context_length", 512);
        file.set("embedding_length", width);
        file.set("block_count", 2);
        file.set("feed_forward_length", ff_width);
        file.set("attention.head_count", 4);
        file.set_real("attention.layer_norm_rms_epsilon", 1e-6f);
        const auto n_vocab = static_cast<int64_t>(file.token_types().size());
        file.add_random("token_embd.weight", {width, n_vocab}, 8.0f);
        file.add_random("output.weight", {width, n_vocab}, 3.0f);
        file.add_constant("output_norm.weight", width, 1.0f);
        for (const std::string block : {"blk.0.", "blk.1."}) {
            file.add_constant(block + "attn_norm.weight", width, 1.0f);
            file.add_constant(block + "ffn_norm.weight", width, 1.0f);
            // The second half is for images, which are not used here.
            for (const std::string expert : {"attn_", "vis_attn_"}) {
                file.add_random(block + expert + "qkv.weight", {width, 3 * width}, 1.5f);
                file.add_random(block + expert + "output.weight", {width, width}, 1.0f);
            }
            for (const std::string expert : {"ffn_", "vis_"}) {
                file.add_random(block + expert + "gate.weight", {width, ff_width}, 1.0f);
                file.add_random(block + expert + "up.weight", {width, ff_width}, 1.0f);
                file.add_random(block + expert + "down.weight", {ff_width, width}, 1.0f);
            }
        }
        file.write(path);
    }
    void TearDown() override { std::filesystem::remove(path); }

    // The logits after the last token, with one pass per token.
    std::vector<float> slow_logits(const std::vector<int32_t> & tokens) {
        const llama_model_ptr model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
        llama_context_params params = llama_context_default_params();
        params.n_threads = params.n_threads_batch = 1;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        params.type_k = params.type_v = GGML_TYPE_F32;
        const llama_context_ptr context(llama_init_from_model(model.get(), params));
        for (llama_token token : tokens) {
            EXPECT_EQ(llama_decode(context.get(), llama_batch_get_one(&token, 1)), 0);
        }
        const float * logits = llama_get_logits_ith(context.get(), -1);
        return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model.get()))};
    }

    std::string path =
        (std::filesystem::temp_directory_path() / ("eliza-every-row-" + std::to_string(getpid()) + ".gguf")).string();
};

TEST_F(EveryRow, GeneratesTheSameAsSingleTokens) {
    const ContextHandle context = create({{"n_ctx", "256"}, {"n_threads", "1"}}, path);
    std::vector<int32_t> text = tokenize(context, "Say hello to everyone. ", true);
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, text);
    for (const int32_t token : pull(stream, 5).tokens) {
        const std::vector<float> logits = slow_logits(text);
        EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
        text.push_back(token);
    }
}

TEST_F(EveryRow, ChoosesTheSameAsSingleTokens) {
    for (const char * strategy : {"auto", "token-by-token", "tree"}) {
        const ContextHandle context = create({{"n_ctx", "256"}, {"n_threads", "1"}, {"strategy", strategy}}, path);
        const std::vector<int32_t> prompt = tokenize(context, "The action: ", true);
        // The best allowed token at each step.
        std::map<std::string, std::vector<int32_t>> left;
        for (const std::string & name : action_names) left[name] = tokenize(context, name);
        std::vector<int32_t> text = prompt;
        for (size_t n = 0; left.size() > 1; ++n) {
            const std::vector<float> logits = slow_logits(text);
            int32_t best = -1;
            for (const auto & [name, tokens] : left) {
                if (n < tokens.size() &&
                    (best < 0 || logits[static_cast<size_t>(tokens[n])] > logits[static_cast<size_t>(best)])) {
                    best = tokens[n];
                }
            }
            for (auto each = left.begin(); each != left.end();) {
                each = n < each->second.size() && each->second[n] == best ? std::next(each) : left.erase(each);
            }
            text.push_back(best);
        }
        const StreamHandle stream = open(context, full_precision_config());
        prefill(stream, prompt);
        set_trie(stream, payload_of(context, action_names), ELIZA_TRIE_STOP_AT_LEAF);
        const Output output = pull(stream);
        EXPECT_EQ(output.status, 1) << output.error;
        EXPECT_EQ(leaf(stream), left.begin()->first) << strategy;
    }
}

}  // namespace
}  // namespace eliza::test
