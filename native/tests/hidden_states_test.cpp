// The hidden states of a prompt's tokens are those of llama.cpp alone, whatever else happens in the same forward pass.

#include <algorithm>
#include <cmath>
#include <thread>
#include <tuple>

#include "engine/pass/layer_rows.h"
#include "engine/pass/pass_runner.h"
#include "test_model.h"
#include "test_session.h"

// Of llama.cpp's header llama-ext.h, which is not installed.
LLAMA_API void llama_set_embeddings_layer_inp(llama_context * context, uint32_t layer, bool value);
LLAMA_API float * llama_get_embeddings_layer_inp(llama_context * context, uint32_t layer);

namespace eliza::test {
namespace {

class HiddenStates : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}, {"n_batch", "64"}, {"n_ctx", "512"}}, f32_model_path());
    const std::shared_ptr<Model> model = Model::load(f32_model_path(), {});
    const int32_t n_layers = llama_model_n_layer(model->get());
    const size_t n_embd = static_cast<size_t>(llama_model_n_embd(model->get()));
    const std::vector<int32_t> prompt =
        tokenize(context, "The quick brown fox jumps over the lazy dog, and the dog sleeps on.", true);

    std::vector<int32_t> all_layers() const {
        std::vector<int32_t> layers(static_cast<size_t>(n_layers));
        for (size_t i = 0; i < layers.size(); ++i) layers[i] = static_cast<int32_t>(i) + 1;
        return layers;
    }

    Decide request(const std::vector<int32_t> & tokens, const std::vector<int32_t> & layers,
                   const std::vector<uint64_t> & ranges) const {
        Decide made{tokens, layers, ranges};
        made.states.resize(layers.size() * ranges.size() / 2 * n_embd);
        return made;
    }

    // The states of the last n_rows tokens.
    std::vector<float> of(const std::vector<int32_t> & tokens, const std::vector<int32_t> & layers, size_t n_rows) {
        std::vector<uint64_t> rows;
        for (size_t at = tokens.size() - n_rows; at < tokens.size(); ++at) rows.insert(rows.end(), {at, at + 1});
        Decide made = request(tokens, layers, rows);
        EXPECT_EQ(made.call(context), 0) << made.error.text();
        return made.states;
    }

    // llama.cpp's own copies of its tensors: [layer][row][n_embd].
    std::vector<float> reference(const std::vector<int32_t> & tokens, const std::vector<int32_t> & layers,
                                 size_t n_rows) const {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = params.n_batch = params.n_ubatch = 512;
        params.n_threads = params.n_threads_batch = 1;
        params.embeddings = true;
        params.pooling_type = LLAMA_POOLING_TYPE_NONE;
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        const llama_context_ptr alone(llama_init_from_model(model->get(), params));
        for (int32_t layer = 1; layer < n_layers; ++layer) {
            llama_set_embeddings_layer_inp(alone.get(), static_cast<uint32_t>(layer), true);
        }
        std::vector<int32_t> copy = tokens;
        EXPECT_EQ(llama_decode(alone.get(), llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()))), 0);
        std::vector<float> found;
        for (const int32_t layer : layers) {
            for (size_t i = tokens.size() - n_rows; i < tokens.size(); ++i) {
                const float * row =
                    layer == n_layers
                        ? llama_get_embeddings_ith(alone.get(), static_cast<int32_t>(i))
                        : llama_get_embeddings_layer_inp(alone.get(), static_cast<uint32_t>(layer)) + i * n_embd;
                found.insert(found.end(), row, row + n_embd);
            }
        }
        return found;
    }

    static void expect_near(const std::vector<float> & got, const std::vector<float> & expected) {
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-3) << "value " << i;
    }
};

TEST_F(HiddenStates, OfAllLayersAreThoseOfLlamaCppAlone) {
    ASSERT_GE(n_layers, 2);
    for (const size_t n_rows : {size_t{1}, size_t{5}, prompt.size()}) {
        expect_near(of(prompt, all_layers(), n_rows), reference(prompt, all_layers(), n_rows));
    }
}

// Ranges that overlap, that are longer than a batch of 64 tokens, and that are a single token.
TEST_F(HiddenStates, AreAveragedOverRangesOfTokens) {
    std::vector<int32_t> text = prompt;
    while (text.size() < 150) text.insert(text.end(), prompt.begin() + 1, prompt.end());
    const std::vector<uint64_t> ranges = {20, 140, 0, text.size(), 30, 31, text.size() - 1, text.size()};
    const size_t n_ranges = ranges.size() / 2;
    for (const std::vector<int32_t> & layers :
         {all_layers(), std::vector<int32_t>{1}, std::vector<int32_t>{n_layers}}) {
        const std::vector<float> states = reference(text, layers, text.size());
        std::vector<float> expected;
        for (size_t layer = 0; layer < layers.size(); ++layer) {
            for (size_t range = 0; range < n_ranges; ++range) {
                std::vector<double> mean(n_embd);
                const uint64_t begin = ranges[2 * range], end = ranges[2 * range + 1];
                for (size_t at = begin; at < end; ++at) {
                    for (size_t i = 0; i < n_embd; ++i) {
                        mean[i] += states[(layer * text.size() + at) * n_embd + i] / static_cast<double>(end - begin);
                    }
                }
                expected.insert(expected.end(), mean.begin(), mean.end());
            }
        }
        Decide made = request(text, layers, ranges);
        ASSERT_EQ(made.call(context), 0) << made.error.text();
        expect_near(made.states, expected);
    }
}

TEST_F(HiddenStates, AreReadAfterABeginningThatStaysInTheCache) {
    for (int32_t i = 0; i < 3; ++i) {
        std::vector<int32_t> text(prompt.begin(), prompt.begin() + 12);
        text.insert(text.end(), {300 + i, 400 + i});
        Decide made = request(text, {1}, {13, 14});
        made.n_kept = 12;
        ASSERT_EQ(made.call(context), 0) << made.error.text();
        expect_near(made.states, reference(text, {1}, 1));
        EXPECT_EQ(made.request.forward_passes, i == 0 ? 2 : 1);
        EXPECT_EQ(made.request.tokens_cached, i == 0 ? 0 : 12);
    }
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, prompt);
    EXPECT_EQ(stats(stream).prompt_tokens_reused, 12);
}

// A pass that stopped early has no keys and values in the deeper layers.
TEST_F(HiddenStates, OfOneLayerLeaveNothingWrongInTheCache) {
    const StreamHandle fresh = open(context, full_precision_config());
    prefill(fresh, prompt);
    const std::vector<int32_t> expected = pull(fresh, 12).tokens;
    for (int32_t layer = 1; layer <= n_layers; ++layer) {
        expect_near(of(prompt, {layer}, 2), reference(prompt, {layer}, 2));
        const StreamHandle stream = open(context, full_precision_config());
        prefill(stream, prompt);
        EXPECT_EQ(pull(stream, 12).tokens, expected) << "layer " << layer;
    }
}

TEST_F(HiddenStates, AreReadBesideALabelThatNeedsNoPass) {
    const ChoicesHandle only = prepare(context, {{340, 341}});
    Decide made = request(prompt, all_layers(), {prompt.size() - 1, prompt.size()});
    made.endings = {{nullptr, 0, only.get()}};
    made.legal.resize(1);
    ASSERT_EQ(made.call(context), 1) << made.error.text();
    expect_near(made.states, reference(prompt, all_layers(), 1));
}

// A tree may have as many rows of logits as fit into the memory for them. The last layer's state needs one more row.
TEST_F(HiddenStates, AreReadBesideTheLargestTree) {
    constexpr size_t n_labels = 48;
    const auto n_rows = static_cast<size_t>(PassRunner::max_rows(*model));
    const std::string size = std::to_string(n_rows + 1024);
    context = create({{"n_threads", "1"}, {"n_batch", size}, {"n_ctx", size}}, f32_model_path());
    Leaves leaves;
    for (size_t i = 0; i < n_labels; ++i) {
        leaves.emplace_back(n_rows / n_labels + 3, static_cast<int32_t>(300 + i));
    }
    const ChoicesHandle labels = prepare(context, leaves);
    Decide made = request(prompt, {n_layers}, {prompt.size() - 1, prompt.size()});
    made.endings = {{nullptr, 0, labels.get()}};
    made.joint.resize(n_labels);
    ASSERT_EQ(made.call(context), static_cast<int32_t>(n_labels)) << made.error.text();
    expect_near(made.states, reference(prompt, {n_layers}, 1));
}

TEST_F(HiddenStates, ErrorsNameTheArgument) {
    const std::string n = std::to_string(prompt.size());
    const std::vector<std::tuple<std::vector<int32_t>, std::vector<int32_t>, std::vector<uint64_t>, std::string>>
        cases = {{prompt, {1}, {3, 3}, "ranges[0]: expected a non-empty part of " + n + " tokens, got 3 to 3"},
                 {prompt, {1}, {0, 1000}, "ranges[0]: expected a non-empty part of " + n + " tokens, got 0 to 1000"},
                 {prompt, {1}, {}, "ranges: expected at least 1, got none"},
                 {prompt,
                  {0},
                  {0, 1},
                  "layers[0]: expected ascending numbers from 1 to " + std::to_string(n_layers) + ", got 0"},
                 {prompt, {n_layers + 1}, {0, 1}, "layers[0]: "},
                 {prompt, {2, 2}, {0, 1}, "layers[1]: "},
                 {prompt, {}, {0, 1}, "expected endings or layers, got none"},
                 {{-5}, {1}, {0, 1}, ""},
                 {{}, {1}, {0, 1}, "the prompt has no tokens"}};
    for (const auto & [tokens, layers, ranges, text] : cases) {
        Decide made = request(tokens, layers, ranges);
        made.states.resize(8 * n_embd);
        EXPECT_EQ(made.call(context), ELIZA_ERR_INVALID_ARG) << text;
        EXPECT_EQ(made.error.text().rfind(text, 0), 0u) << made.error.text();
    }
    Decide small = request(prompt, {1, 2}, {0, 1});
    small.states.resize(n_embd);
    EXPECT_EQ(small.call(context), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(small.error.text().rfind("cap:", 0), 0u) << small.error.text();
    EXPECT_EQ(request(std::vector<int32_t>(600, 5), {1}, {0, 1}).call(context), ELIZA_ERR_CONTEXT_FULL);
}

TEST_F(HiddenStates, InSharedPassesAreTheSame) {
    constexpr int n_streams = 6;
    std::vector<StreamHandle> streams;
    for (int i = 0; i < n_streams; ++i) {
        streams.push_back(i % 3 == 0 ? open(context, full_precision_config())
                                     : StreamHandle(nullptr, eliza_inference_llm_stream_close));
    }
    const std::vector<int32_t> layers = all_layers();
    std::vector<std::vector<float>> found(n_streams);
    std::vector<std::vector<int32_t>> written(n_streams), prompts;
    for (int i = 0; i < n_streams; ++i) {
        prompts.push_back(tokenize(context, "Number " + std::to_string(i) + ": what a day!", true));
    }
    for (int round = 0; round < 4; ++round) {
        std::vector<std::thread> threads;
        for (int i = 0; i < n_streams; ++i) {
            threads.emplace_back([&, i] {
                const auto at = static_cast<size_t>(i);
                if (i % 3 == 0) {  // generates meanwhile
                    eliza_inference_llm_stream_reset(streams[at].get());
                    prefill(streams[at], prompts[at]);
                    written[at] = pull(streams[at], 10).tokens;
                } else if (i % 3 == 1) {
                    found[at] = of(prompts[at], layers, 1);
                } else {
                    found[at] = of(prompts[at], {layers[0]}, 1);  // may stop early
                }
            });
        }
        for (std::thread & thread : threads) thread.join();
        for (size_t at = 0; at < n_streams; ++at) {
            if (at % 3 == 0) {
                const ContextHandle other = create({{"n_threads", "1"}}, f32_model_path());
                const StreamHandle alone = open(other, full_precision_config());
                prefill(alone, prompts[at]);
                EXPECT_EQ(written[at], pull(alone, 10).tokens);
            } else {
                expect_near(found[at],
                            reference(prompts[at], at % 3 == 1 ? layers : std::vector<int32_t>{layers[0]}, 1));
            }
        }
    }
}

TEST_F(HiddenStates, OfAPromptOfSeveralBatchesAreThoseOfLlamaCppAlone) {
    std::vector<int32_t> tokens;
    while (tokens.size() < 200) tokens.insert(tokens.end(), prompt.begin() + 1, prompt.end());
    expect_near(of(tokens, {1, n_layers}, 3), reference(tokens, {1, n_layers}, 3));
}

// ggml derives names from names: RWKV reshapes the output of each block, which must not count twice.
TEST(LayerRows, TakesOnlyTheTensorOfALayer) {
    const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({1 << 16, nullptr, false}), ggml_free);
    LayerRows rows(/*n_layers=*/3, /*n_embd=*/4);
    rows.begin_pass({1, 3}, /*stops=*/false);
    for (const auto & [name, is_wanted] : std::initializer_list<std::pair<const char *, bool>>{
             {"l_out-0", true},
             {"result_norm", true},
             {"l_out-0 (reshaped)", false},
             {"l_out-1", false},
             {"l_out-2", false},
             {"l_out-", false},
             {"l_out-00x", false},
             {"result_norm (view)", false},
             {"", false},
         }) {
        ggml_tensor * tensor = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 4, 2);
        ggml_set_name(tensor, name);
        EXPECT_EQ(rows.wants(*tensor), is_wanted) << name;
    }
    ggml_tensor * narrow = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 3, 2);
    ggml_set_name(narrow, "l_out-0");
    EXPECT_FALSE(rows.wants(*narrow));
    EXPECT_EQ(rows.row(1, {2, 1}, 1, 0), nullptr);
}

}  // namespace
}  // namespace eliza::test
