// A model whose logits are not finite numbers: every function reports an error, and none returns a label or a token.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "ggml-cpp.h"
#include "test_session.h"

namespace eliza::test {
namespace {

// A copy of the model in full precision, in which the weights of the last norm are one value.
std::string model_with_last_norm(float value) {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("eliza-odd-" + std::to_string(getpid()) + ".gguf")).string();
    std::filesystem::copy_file(f32_model_path(), path, std::filesystem::copy_options::overwrite_existing);
    const gguf_context_ptr file(gguf_init_from_file(path.c_str(), {true, nullptr}));
    const int64_t tensor = gguf_find_tensor(file.get(), "output_norm.weight");
    if (tensor < 0) throw std::runtime_error("the model has no output_norm.weight");
    const size_t n = gguf_get_tensor_size(file.get(), tensor) / sizeof(float);
    const std::vector<float> values(n, value);
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(
        static_cast<std::streamoff>(gguf_get_data_offset(file.get()) + gguf_get_tensor_offset(file.get(), tensor)));
    out.write(reinterpret_cast<const char *>(values.data()), static_cast<std::streamsize>(n * sizeof(float)));
    return path;
}

class OddLogits : public testing::TestWithParam<float> {
protected:
    const std::string path = model_with_last_norm(GetParam());
    ErrorText error;

    void TearDown() override { std::filesystem::remove(path); }

    void expect_error(const std::string & name, int status) {
        EXPECT_EQ(status, ELIZA_ERR_FFI_FAULT) << name;
        EXPECT_NE(error.text().find("finite"), std::string::npos) << name << ": " << error.text();
    }
};

TEST_P(OddLogits, AreAnErrorOfEveryFunction) {
    for (const char * restricted_head : {"auto", "off"}) {
        for (const char * strategy : {"auto", "tree", "skip-ahead", "token-by-token"}) {
            SCOPED_TRACE(std::string(restricted_head) + " " + strategy);
            const ContextHandle context = create(
                {{"n_threads", "1"}, {"restricted_head", restricted_head}, {"strategy", strategy}, {"seed", "1"}},
                path);
            const char * const labels[] = {"SEND_MAIL", "SEND_MAIL_TO_ALL", "STOP"};
            const std::string json = R"(["SEND_MAIL","SEND_MAIL_TO_ALL","STOP"])";
            const ChoicesHandle prepared(eliza_inference_prepare_labels(context.get(), labels, 3, error.out()),
                                         eliza_inference_free_choices);
            double probabilities[3];
            eliza_choice_t choice{};
            for (const auto mode : {ELIZA_TRIE_ARGMAX, ELIZA_TRIE_SAMPLE, ELIZA_TRIE_BEST_LEAF}) {
                eliza_choose_options_t options{};
                options.size = sizeof options;
                options.mode = mode;
                expect_error("choose", eliza_inference_choose(context.get(), "Do: ", labels, 3, &options, &choice,
                                                              nullptr, error.out()));
                expect_error("choose_prepared",
                             eliza_inference_choose_prepared(context.get(), "Do: ", prepared.get(), &options, &choice,
                                                             probabilities, error.out()));
            }
            eliza_ranked_t ranked[3];
            eliza_ranking_t ranking{};
            for (const auto rule : {ELIZA_RANK_LEGAL, ELIZA_RANK_JOINT}) {
                eliza_rank_options_t options{};
                options.size = sizeof options;
                options.rule = rule;
                options.k = 3;
                expect_error("rank", eliza_inference_rank(context.get(), "Do: ", prepared.get(), &options, ranked, 3,
                                                          &ranking, error.out()));
            }
            const std::vector<std::pair<const char *, std::function<int(EliLlmStream *)>>> calls = {
                {"rank_texts",
                 [&](EliLlmStream * stream) {
                     return eliza_inference_llm_stream_rank_texts(stream, json.data(), json.size(), nullptr, ranked, 3,
                                                                  &ranking, error.out());
                 }},
                {"score_endings",
                 [&](EliLlmStream * stream) {
                     const eliza_ending_t ending{nullptr, 0, prepared.get()};
                     double joint[3], mass = 0.0;
                     return eliza_inference_llm_stream_score_endings(stream, &ending, 1, probabilities, joint, &mass, 3,
                                                                     error.out());
                 }},
                {"option_mass",
                 [&](EliLlmStream * stream) {
                     const eliza_ending_t ending{nullptr, 0, prepared.get()};
                     double mass = 0.0;
                     return eliza_inference_llm_stream_score_endings(stream, &ending, 1, probabilities, nullptr, &mass,
                                                                     3, error.out());
                 }},
                {"generate",
                 [&](EliLlmStream * stream) {
                     std::vector<int32_t> tokens;
                     const auto keep = [](int32_t, const char *, void *) { return 0; };
                     return eliza_inference_llm_stream_generate(stream, 2, keep, nullptr, error.out());
                 }},
                {"logprobs",
                 [&](EliLlmStream * stream) {
                     eliza_inference_llm_stream_set_logprobs(stream, 2, nullptr);
                     const auto keep = [](int32_t, const char *, void *) { return 0; };
                     return eliza_inference_llm_stream_generate(stream, 2, keep, nullptr, error.out());
                 }},
                {"prefill_logprobs",
                 [&](EliLlmStream * stream) {
                     const int32_t tokens[] = {30, 31};
                     eliza_token_logprob_t out[2];
                     return eliza_inference_llm_stream_prefill_logprobs(stream, tokens, 2, 0, out, 2, error.out());
                 }},
                {"eot_score",
                 [&](EliLlmStream *) {
                     const int32_t tokens[] = {30, 31};
                     float probability = 0.0f;
                     return eliza_inference_llm_eot_score(context.get(), tokens, 2, 5, &probability, nullptr, nullptr,
                                                          error.out());
                 }},
                {"embed",
                 [&](EliLlmStream *) {
                     std::vector<float> out(8192);
                     int size = 0;
                     return eliza_inference_embed(context.get(), "cat", 3, 1, out.data(), out.size(), &size,
                                                  error.out());
                 }},
            };
            for (const auto & [name, call] : calls) {
                const StreamHandle stream = open(context);
                prefill(stream, {20, 21, 22});
                expect_error(name, call(stream.get()));
            }
            const StreamHandle stream = open(context);
            prefill(stream, {20, 21, 22});
            ASSERT_EQ(eliza_inference_set_choices(stream.get(), prepared.get(), ELIZA_TRIE_ARGMAX), 0);
            EXPECT_LT(eliza_inference_token_trie_scores(stream.get(), probabilities, 3), 0);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, OddLogits, testing::Values(NAN, INFINITY),
                         [](const auto & test) { return std::isnan(test.param) ? "NotANumber" : "Infinite"; });

}  // namespace
}  // namespace eliza::test
