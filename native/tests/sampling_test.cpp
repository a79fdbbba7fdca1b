// The sampler chain by name and order, its settings, and Gumbel-max.

#include <algorithm>
#include <cmath>
#include <random>

#include "eliza/eliza_gumbel_sampler.h"
#include "error.h"
#include "sampling/gumbel.h"
#include "sampling/sampler_chain.h"
#include "sampling/token_selector.h"
#include "test_session.h"

namespace eliza::test {
namespace {

SamplingParams params_of(const std::string & json) { return parse_sampling({}, json); }

std::string refusal(const std::string & json) {
    try {
        params_of(json);
    } catch (const Error & error) {
        return error.what();
    }
    return "";
}

class Sampling : public testing::Test {
protected:
    std::shared_ptr<Model> model = load_model();

    std::string chain_of(const std::string & json) const {
        return SamplerChain(model->vocab(), params_of(json)).describe();
    }
    // Counts how often each of n tokens is drawn from the logits.
    std::vector<int> draw(const std::string & json, const std::vector<float> & logits, int n_draws) const {
        SamplerChain chain(model->vocab(), params_of(json));
        Candidates candidates;
        std::vector<llama_token> tokens(logits.size());
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<llama_token>(i);
        std::vector<int> counts(logits.size());
        for (int i = 0; i < n_draws; ++i) {
            const llama_token token = chain.sample(candidates.fill(logits.data(), tokens.data(), tokens.size()));
            ++counts[static_cast<size_t>(token)];
            chain.accept(token);
        }
        return counts;
    }
};

TEST(Argmax, IsTheFirstLargestLogit) {
    std::mt19937 random(3);
    for (const int32_t n : {1, 15, 16, 17, 255, 256, 257, 300, 1000, 4099}) {
        for (int turn = 0; turn < 200; ++turn) {
            std::vector<float> logits(static_cast<size_t>(n));
            // Few different values, so that the largest one is often at several places.
            for (float & logit : logits) logit = static_cast<float>(static_cast<int>(random() % 50) - 25);
            if (turn % 4 == 1) std::fill(logits.begin(), logits.begin() + n / 2, -INFINITY);
            const auto expected = std::max_element(logits.begin(), logits.end()) - logits.begin();
            ASSERT_EQ(argmax(logits.data(), n), expected) << n << " logits, turn " << turn;

            const std::vector<float> none(logits.size(), -INFINITY);
            ASSERT_THROW(argmax(none.data(), n), Error);
            logits[random() % logits.size()] = turn % 2 == 0 ? NAN : INFINITY;
            ASSERT_THROW(argmax(logits.data(), n), Error);
        }
    }
}

TEST_F(Sampling, TheChainHasTheActiveSamplersInOrder) {
    EXPECT_EQ(chain_of("{}"), "greedy");
    EXPECT_EQ(chain_of(R"({"temperature":1})"), "dist");
    EXPECT_EQ(chain_of(R"({"preset":"balanced"})"), "top_k;top_p;min_p;temperature;dist");
    EXPECT_EQ(chain_of(R"({"preset":"greedy"})"), "greedy");
    EXPECT_EQ(chain_of(R"({"top_k":10,"preset":"code"})"), "top_k;top_p;min_p;temperature;dist");
    EXPECT_EQ(chain_of(R"({"temperature":0.5,"repeat_penalty":1.1,"dry_multiplier":0.8,"top_n_sigma":1,"top_k":4,
                           "typical_p":0.9,"top_p":0.9,"min_p":0.1,"xtc_probability":0.5})"),
              "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;dist");
    EXPECT_EQ(chain_of(R"({"temperature":0.5,"top_k":4,"min_p":0.1,"samplers":"temperature;min_p;top_k"})"),
              "temperature;min_p;top_k;dist");
    EXPECT_EQ(chain_of(R"({"temperature":1,"samplers":""})"), "dist");
    EXPECT_EQ(chain_of(R"({"temperature":0.5,"mirostat":1,"top_k":4})"), "temperature;mirostat");
    EXPECT_EQ(chain_of(R"({"temperature":0.5,"mirostat":2,"repeat_penalty":2})"), "penalties;temperature;mirostat_v2");
    EXPECT_EQ(chain_of(R"({"temperature":0.5,"draw":"gumbel"})"), "temperature;gumbel");
    EXPECT_EQ(chain_of(R"({"temperature":1,"adaptive_target":0.5,"samplers":"min_p;adaptive_p"})"), "adaptive_p");
    EXPECT_EQ(chain_of(R"({"temperature":1,"logit_bias":[[5,-1.5],[6,"-inf"]],"samplers":"infill"})"),
              "logit_bias;infill;dist");
    // Greedy selection needs no other sampler.
    EXPECT_EQ(chain_of(R"({"top_k":40,"repeat_penalty":1.1})"), "penalties;greedy");
}

TEST(SamplingParams, ErrorsNameTheAllowedValues) {
    EXPECT_EQ(refusal(R"({"samplers":"top_k;best"})"),
              "samplers: \"best\" is not one of penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, "
              "temperature, infill, adaptive_p");
    EXPECT_EQ(refusal(R"({"samplers":"top_k;min_p;top_k"})"),
              "samplers: \"top_k\" is repeated in \"top_k;min_p;top_k\"");
    EXPECT_EQ(refusal(R"({"samplers":"adaptive_p;top_k"})"),
              "samplers: adaptive_p selects the token, so \"top_k\" cannot come after it");
    EXPECT_EQ(refusal(R"({"top_p":1.5})"), "option top_p: expected 0 to 1 (off), got \"1.5\"");
    EXPECT_EQ(refusal(R"({"temperature":-1})"), "option temperature: expected 0 (greedy) to 1000000, got \"-1\"");
    EXPECT_EQ(refusal(R"({"temperature":"nan"})"), "option temperature: expected 0 (greedy) to 1000000, got \"nan\"");
    EXPECT_EQ(refusal(R"({"mirostat":3})"), "option mirostat: expected 0 (off), 1 or 2, got \"3\"");
    EXPECT_EQ(refusal(R"({"preset":"wild"})"),
              "option preset: expected greedy, balanced, creative, very-creative or code, got \"wild\"");
    EXPECT_EQ(refusal(R"({"draw":"dice"})"), "option draw: expected cdf or gumbel, got \"dice\"");
    EXPECT_EQ(refusal(R"({"logit_bias":[[1]]})"), "logit_bias[0]: expected [token, bias] with a number or \"-inf\"");
    EXPECT_EQ(refusal(R"({"logit_bias":{"1":2}})"), "logit_bias: expected an array of [token, bias], found object");
    EXPECT_EQ(refusal(R"({"dry_sequence_breakers":"x"})"), "dry_sequence_breakers is not JSON: byte 1 of 1");
    EXPECT_EQ(refusal(R"({"top_kk":1})").rfind("sampling: unknown key \"top_kk\"; known keys: preset, samplers", 0),
              0u);
    EXPECT_EQ(refusal("[1]"), "sampling: expected an object, found array");
    EXPECT_EQ(refusal(R"({"samplers":"top_k;"})").rfind("samplers: \"\" is not one of penalties", 0), 0u);
    EXPECT_EQ(refusal(R"({"dry_sequence_breakers":{}})"),
              "dry_sequence_breakers: expected an array of strings, found object");
    EXPECT_EQ(refusal(R"({"dry_sequence_breakers":["a",")" + std::string(41, 'x') + R"("]})"),
              "dry_sequence_breakers[1]: expected a string of 1 to 40 bytes without a NUL");
    EXPECT_EQ(refusal(R"({"logit_bias":[[18446744073709551615,1]]})"),
              "logit_bias[0]: expected a token from 0 to 2147483647, got 18446744073709551615");
    EXPECT_EQ(refusal(R"({"logit_bias":[[7,1],[7,2]]})"), "logit_bias[1]: token 7 already has a bias in logit_bias[0]");
    EXPECT_EQ(
        refusal(R"({"logit_bias":[[7,-1e300]]})").rfind("logit_bias[0]: expected a bias from -1000000 to 1000000", 0),
        0u);
}

TEST_F(Sampling, SettingsThatWouldBeIgnoredAreRejected) {
    const auto refused_chain = [&](const std::string & json) {
        try {
            chain_of(json);
        } catch (const Error & error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(refused_chain(R"({"temperature":0.5,"top_k":4,"samplers":"temperature"})"),
              "top_k is set, but \"top_k\" is missing from samplers");
    EXPECT_EQ(refused_chain(R"({"temperature":0.5,"samplers":"top_k"})"),
              "temperature is set, but \"temperature\" is missing from samplers");
    for (const char * json : {R"({"temperature":1,"mirostat":2,"draw":"gumbel"})",
                              R"({"temperature":1,"mirostat":1,"adaptive_target":0.5,"samplers":"adaptive_p"})",
                              R"({"temperature":1,"draw":"gumbel","adaptive_target":0.5,"samplers":"adaptive_p"})"}) {
        EXPECT_EQ(refused_chain(json),
                  "mirostat, adaptive_p and draw \"gumbel\" each draw the token: use only one of them");
    }
}

TEST_F(Sampling, ABiasOutsideTheVocabularyIsRejected) {
    EXPECT_THROW(SamplerChain(model->vocab(), params_of(R"({"logit_bias":[[99999999,1]]})")), Error);
}

TEST(LogSumExp, IsTheSumOfExponentialsInDoublePrecision) {
    std::mt19937 random(3);
    for (const size_t n : {1, 2, 15, 16, 17, 30, 300, 5000, 262144}) {
        for (const float spread : {0.01f, 3.0f, 30.0f, 400.0f}) {
            std::normal_distribution<float> normal(-5.0f, spread);
            std::vector<float> logits(n);
            for (float & logit : logits) logit = normal(random);
            if (n > 2) logits[n / 2] = -INFINITY;
            const float largest = *std::max_element(logits.begin(), logits.end());
            double sum = 0.0;
            for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
            EXPECT_NEAR(log_sum_exp(logits.data(), n), largest + std::log(sum), 1e-6) << n << " " << spread;
        }
    }
    const float none[] = {-INFINITY, -INFINITY};
    EXPECT_EQ(log_sum_exp(none, 2), -INFINITY);
    EXPECT_EQ(log_sum_exp(none, 0), -INFINITY);
    EXPECT_THROW(finite_total(log_sum_exp(none, 2)), Error);
    for (const size_t n : {1u, 2u, 17u, 300u}) {
        for (const float wrong : {NAN, INFINITY}) {
            for (const size_t place : {size_t{0}, n / 2, n - 1}) {
                std::vector<float> logits(n, -1.0f);
                logits[place] = wrong;
                EXPECT_THROW(log_sum_exp(logits.data(), n), Error) << wrong << " at " << place << " of " << n;
            }
        }
    }
}

TEST(LogOfPositive, IsTheLogarithm) {
    EXPECT_EQ(log_of_positive(1.0), 0.0);
    for (double x = 1e-300; x < 1e300; x *= 1.0371) {
        EXPECT_NEAR(log_of_positive(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
    }
    for (double x = 0.5; x < 300000.0; x *= 1.00013) {
        ASSERT_NEAR(log_of_positive(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
    }
}

TEST_F(Sampling, ALogitThatIsNotAFiniteNumberIsAnError) {
    for (const char * json : {"{}", R"({"temperature":1})", R"({"temperature":1,"top_k":2,"draw":"gumbel"})"}) {
        EXPECT_THROW(draw(json, {1.0f, NAN, 2.0f}, 1), Error) << json;
        EXPECT_THROW(draw(json, {1.0f, INFINITY, 2.0f}, 1), Error) << json;
        EXPECT_THROW(draw(json, {-INFINITY, -INFINITY}, 1), Error) << json;
    }
    EXPECT_EQ(draw(R"({"temperature":1,"draw":"gumbel"})", {-INFINITY, 0.0f, -INFINITY}, 20)[1], 20);
    EXPECT_EQ(draw(R"({"temperature":1})", {0.0f}, 5)[0], 5);
}

TEST_F(Sampling, BiasesThatBanEveryTokenAreAnError) {
    for (const char * settings : {"", R"("temperature":1,)", R"("temperature":1,"typical_p":0.5,)",
                                  R"("temperature":1,"top_k":2,"top_p":0.5,"draw":"gumbel",)"}) {
        const std::string json = std::string("{") + settings + R"("logit_bias":[[0,"-inf"],[1,"-inf"]]})";
        try {
            draw(json.c_str(), {1.0f, 2.0f}, 1);
            ADD_FAILURE() << json;
        } catch (const Error & error) {
            EXPECT_EQ(std::string(error.what()).rfind("no token is left to choose from", 0), 0u) << error.what();
        }
        EXPECT_EQ(draw(json.c_str(), {1.0f, 2.0f, -50.0f}, 5)[2], 5) << json;
    }
}

// With only the most probable tokens as candidates, the chain draws the same tokens as from the whole vocabulary.
TEST_F(Sampling, TopKFirstNeedsNoOtherCandidates) {
    std::mt19937 random(8);
    std::normal_distribution<float> normal(0.0f, 4.0f);
    for (const char * json : {R"({"seed":5,"temperature":1,"top_k":20})", R"({"seed":5,"preset":"balanced"})",
                              R"({"seed":5,"temperature":1,"top_k":8,"repeat_penalty":1.5,"presence_penalty":1})"}) {
        SamplerChain all(model->vocab(), params_of(json)), some(model->vocab(), params_of(json));
        ASSERT_GT(some.n_candidates(), 0u);
        Candidates of_all, of_some;
        std::vector<float> logits(static_cast<size_t>(model->n_vocab()));
        for (int round = 0; round < 200; ++round) {
            for (float & logit : logits) logit = normal(random);
            const llama_token token = all.sample(of_all.fill(logits.data(), model->n_vocab()));
            ASSERT_EQ(some.sample(of_some.fill_top(logits.data(), model->n_vocab(), some.n_candidates())), token);
            all.accept(token);
            some.accept(token);
        }
    }
    for (const char * json : {R"({"temperature":1})", R"({"temperature":1,"top_k":9,"dry_multiplier":1})",
                              R"({"temperature":1,"top_k":9,"repeat_penalty":0.5})", R"({"temperature":1,"top_k":900})",
                              R"({"temperature":1,"top_k":9,"logit_bias":[[1,1]]})", "{}",
                              R"({"temperature":1,"top_k":9,"samplers":"min_p;top_k","min_p":0.1})"}) {
        EXPECT_EQ(SamplerChain(model->vocab(), params_of(json)).n_candidates(), 0u) << json;
    }
}

// The hash that docs/reference/sampling.md describes, written out in 64-bit integer arithmetic.
TEST(Gumbel, UniformsAgreeWithTheHash) {
    const auto by_hand = [](uint32_t position, uint32_t offset, uint32_t token) {
        const uint64_t m = uint64_t(1) << 32;
        const uint64_t start = (uint64_t(position) + offset) % m * 2654435761u % m;
        const uint64_t state = ((start + token) % m * 747796405u + 2891336453u) % m;
        const uint64_t word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u % m;
        return static_cast<float>(static_cast<uint32_t>((word >> 22) ^ word)) / 4294967296.0f;
    };
    for (uint32_t i = 0; i < 1000; ++i) {
        EXPECT_EQ(gumbel_uniform(i, 7 * i, 13 * i), std::min(std::max(by_hand(i, 7 * i, 13 * i), 1e-7f), 1.0f - 1e-7f));
    }
}

// Both ways of drawing follow the same probabilities: a chi-square test with 5 degrees of freedom, which exceeds 20.5
// once in 1,000 samples. Seeds are fixed.
TEST_F(Sampling, CdfAndGumbelDrawFromTheSoftmax) {
    const std::vector<float> logits = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, 1.5f};
    constexpr int n_draws = 20000;
    for (const char * draw_name : {"cdf", "gumbel"}) {
        for (const float temperature : {1.0f, 0.7f, 2.0f}) {
            double total = 0.0;
            for (const float logit : logits) total += std::exp(logit / temperature);
            const std::vector<int> counts =
                draw(R"({"seed":3,"temperature":)" + std::to_string(temperature) + R"(,"draw":")" + draw_name + "\"}",
                     logits, n_draws);
            double chi_square = 0.0;
            for (size_t i = 0; i < logits.size(); ++i) {
                const double expected = n_draws * std::exp(logits[i] / temperature) / total;
                chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
            }
            EXPECT_LT(chi_square, 20.5) << draw_name << " at " << temperature;
        }
    }
}

TEST(Gumbel, ADrawDoesNotDependOnOtherCandidates) {
    std::mt19937 random(4);
    for (uint32_t position = 0; position < 500; ++position) {
        std::vector<llama_token_data> all(50), some;
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = {static_cast<llama_token>(i), static_cast<float>(random() % 1000) / 250.0f, 0.0f};
            if (random() % 3 == 0) some.push_back(all[i]);
        }
        llama_sampler_ptr sampler(llama_sampler_init_gumbel(11));
        for (uint32_t i = 0; i < position; ++i) llama_sampler_accept(sampler.get(), 0);
        const auto selected = [&](std::vector<llama_token_data> & from) {
            llama_token_data_array array{from.data(), from.size(), -1, false};
            llama_sampler_apply(sampler.get(), &array);
            return from[static_cast<size_t>(array.selected)].id;
        };
        // If the overall winner is among a subset, it wins there too.
        const llama_token winner = selected(all);
        const bool is_there = std::any_of(some.begin(), some.end(), [&](const auto & c) { return c.id == winner; });
        if (is_there) {
            EXPECT_EQ(selected(some), winner);
        }
        EXPECT_EQ(selected(all), winner);  // draws have no common state
        llama_sampler_ptr copy(llama_sampler_clone(sampler.get()));
        llama_token_data_array array{all.data(), all.size(), -1, false};
        llama_sampler_apply(copy.get(), &array);
        EXPECT_EQ(all[static_cast<size_t>(array.selected)].id, winner);
    }
}

class SamplingInAStream : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}}, f32_model_path());

    std::vector<int32_t> generate(const std::string & json, const std::string & strategy = "auto",
                                  int mode = ELIZA_TRIE_SAMPLE) {
        EXPECT_EQ(eliza_inference_set_option(context.get(), "strategy", strategy.c_str(), nullptr), 0);
        const StreamHandle stream = open(context, full_precision_config());
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), error.out()), 0)
            << error.text();
        prefill(stream, chat_prompt(context, "hello"));
        std::vector<int32_t> tokens = pull(stream, 8).tokens;
        set_trie(stream, payload_of(context, action_names), mode);
        for (const int32_t token : pull(stream, 12).tokens) tokens.push_back(token);
        return tokens;
    }
    static std::string chain(const StreamHandle & stream) {
        char * out = nullptr;
        EXPECT_EQ(eliza_inference_llm_stream_describe_chain(stream.get(), &out, nullptr), 0);
        const std::string text = out;
        eliza_inference_free_string(out);
        return text;
    }
};

// For example, a caller may set the temperature before each token.
TEST_F(SamplingInAStream, UnchangedSettingsKeepTheirState) {
    for (const std::string & settings :
         {std::string(R"("temperature":1.5,"seed":7)"), std::string(R"("temperature":1.5,"seed":7,"draw":"gumbel")"),
          std::string(R"("temperature":1.5,"seed":7,"mirostat":1)"),
          std::string(R"("temperature":1.5,"seed":7,"mirostat":2)"),
          std::string(R"("temperature":1.5,"seed":7,"samplers":"temperature;adaptive_p","adaptive_target":0.3)"),
          std::string(R"("temperature":1.5,"seed":7,"xtc_probability":0.5,"xtc_threshold":0.01)")}) {
        const auto generate_setting = [&](bool each_time) {
            const StreamHandle stream = open(context, full_precision_config());
            const std::string json = "{" + settings + "}";
            std::vector<int32_t> tokens;
            prefill(stream, chat_prompt(context, "hello"));
            for (int i = 0; i < 20; ++i) {
                if (i == 0 || each_time) {
                    ErrorText error;
                    EXPECT_EQ(
                        eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), error.out()), 0)
                        << error.text();
                }
                for (const int32_t token : push(stream, 1).tokens) tokens.push_back(token);
            }
            return tokens;
        };
        EXPECT_EQ(generate_setting(true), generate_setting(false)) << settings;
    }
}

TEST_F(SamplingInAStream, ChangedSettingsDrawOtherNumbers) {
    const auto first_token_after = [&](const std::string & earlier) {
        const StreamHandle stream = open(context, full_precision_config());
        prefill(stream, chat_prompt(context, "hello"));
        std::vector<int32_t> tokens;
        for (const std::string & json :
             {earlier, std::string(R"({"temperature":9,"seed":7,"mirostat":2,"mirostat_tau":9})")}) {
            EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), nullptr), 0);
            eliza_inference_llm_stream_reset_keep(stream.get(), 8);
            for (const int32_t token : push(stream, 5).tokens) tokens.push_back(token);
        }
        return std::vector<int32_t>(tokens.end() - 5, tokens.end());
    };
    EXPECT_NE(first_token_after(R"({"temperature":9,"seed":7,"mirostat":2,"mirostat_tau":8})"),
              first_token_after(R"({"temperature":0,"seed":7})"));
}

TEST_F(SamplingInAStream, TheSameSeedGivesTheSameTokensInAndOutsideSpans) {
    for (const std::string & settings :
         {std::string(R"("preset":"creative")"), std::string(R"("preset":"creative","draw":"gumbel")"),
          std::string(R"("temperature":1.5,"mirostat":2)"), std::string(R"("temperature":1,"mirostat":1)"),
          std::string(R"("temperature":1,"xtc_probability":0.9,"dry_multiplier":0.8)"),
          std::string(R"("temperature":1,"dynatemp_range":0.5,"top_n_sigma":1)"),
          std::string(R"("temperature":1,"adaptive_target":0.3,"samplers":"min_p;adaptive_p")"),
          std::string(R"("temperature":1,"samplers":"top_k;infill","top_k":20)")}) {
        const std::string json = "{\"seed\":9," + settings + "}";
        const auto tokens = generate(json);
        EXPECT_GT(tokens.size(), 1u) << json;
        EXPECT_EQ(generate(json), tokens) << json;
        EXPECT_EQ(generate(json, "token-by-token"), tokens) << json;
    }
}

TEST_F(SamplingInAStream, DescribesItsChain) {
    const std::string gbnf = "root ::= [a-z]+";
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = gbnf.c_str();
    cfg.temperature = 0.8f;
    cfg.top_k = 40;
    const StreamHandle stream = open(context, cfg);
    EXPECT_EQ(chain(stream), "top_k;temperature;dist;grammar");
    prefill(stream, {30});
    set_trie(stream, payload_of(context, action_names), 0);
    EXPECT_EQ(chain(stream), "token_trie;top_k;temperature;dist;grammar");
    ASSERT_EQ(eliza_inference_set_option(context.get(), "preset", "balanced", nullptr), 0);
    EXPECT_EQ(chain(open(context)), "top_k;top_p;min_p;temperature;dist");
    ASSERT_EQ(eliza_inference_set_option(context.get(), "temperature", "0", nullptr), 0);
    EXPECT_EQ(chain(open(context)), "greedy");
}

TEST_F(SamplingInAStream, ARejectedSettingChangesNothing) {
    const StreamHandle stream = open(context);
    ErrorText error;
    const std::string json = R"({"top_k":5,"top_p":7})";
    EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), error.out()),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text(), "option top_p: expected 0 to 1 (off), got \"7\"");
    EXPECT_EQ(chain(stream), "greedy");
}

TEST_F(SamplingInAStream, ALazyGrammarWaitsForItsTrigger) {
    const std::string triggers = R"([{"type":"word","value":"<"}])";
    ASSERT_EQ(eliza_inference_set_option(context.get(), "grammar_triggers", triggers.c_str(), nullptr), 0);
    const std::string gbnf = "root ::= \"<\" [0-9]+ \">\"";
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = gbnf.c_str();
    const StreamHandle lazy = open(context, cfg);
    ASSERT_EQ(eliza_inference_set_option(context.get(), "grammar_triggers", "", nullptr), 0);
    const StreamHandle plain = open(context);
    prefill(lazy, chat_prompt(context, "hello"));
    prefill(plain, chat_prompt(context, "hello"));
    const Output free_text = pull(plain, 10), awaiting = pull(lazy, 10);
    ASSERT_EQ(free_text.text.find('<'), std::string::npos);
    EXPECT_EQ(awaiting.tokens, free_text.tokens);
    const auto set = [&](const char * json) {
        return eliza_inference_set_option(context.get(), "grammar_triggers", json, nullptr);
    };
    EXPECT_EQ(set("[]"), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(set(R"([{"type":"patern","value":"a"}])"), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(set(R"([{"type":"pattern","value":"("}])"), ELIZA_ERR_INVALID_ARG);
}

class Reasoning : public SamplingInAStream {
protected:
    // Tags that this vocabulary spells with several tokens.
    const std::string tags = R"("reasoning_start":"<plan>","reasoning_end":"</plan>")";

    StreamHandle thinking(const std::string & settings, const std::string & prompt) {
        StreamHandle stream = open(context);
        const std::string json = "{" + tags + settings + "}";
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), error.out()), 0)
            << error.text();
        prefill(stream, tokenize(context, prompt));
        return stream;
    }
    std::vector<int32_t> free_tokens(const std::string & prompt, size_t n) {
        const StreamHandle stream = open(context);
        prefill(stream, tokenize(context, prompt));
        return pull(stream, n).tokens;
    }
};

TEST_F(Reasoning, EndsWhenItsBudgetIsUsedUp) {
    const std::string prompt = "Say hello. <plan>";
    const std::vector<int32_t> end = tokenize(context, " enough</plan>");
    for (const int budget : {0, 1, 5}) {
        const StreamHandle stream =
            thinking(R"(,"reasoning_message":" enough","reasoning_budget":)" + std::to_string(budget), prompt);
        EXPECT_EQ(chain(stream), "reasoning_budget;greedy");
        std::vector<int32_t> expected = free_tokens(prompt, static_cast<size_t>(budget));
        ASSERT_EQ(expected.size(), static_cast<size_t>(budget));
        expected.insert(expected.end(), end.begin(), end.end());
        EXPECT_EQ(pull(stream, expected.size()).tokens, expected);
        EXPECT_GE(pull(stream, 3).status, 0);  // and then continues freely
    }
}

TEST_F(Reasoning, CountsOnlyInsideTheBlock) {
    for (const char * prompt : {"Say hello. ", "<plan> a </plan> Say hello. ", "<plan> a"}) {
        const bool is_open = std::string(prompt) == "<plan> a";
        const StreamHandle stream = thinking(R"(,"reasoning_budget":2)", prompt);
        const Output output = pull(stream, 12);
        EXPECT_EQ(output.text.find("</plan>") != std::string::npos, is_open) << prompt << output.text;
        if (!is_open) {
            EXPECT_EQ(output.tokens, free_tokens(prompt, 12));
        }
    }
}

TEST_F(Reasoning, AnActiveTrieTakesPrecedence) {
    const std::string prompt = "Say hello. <plan>";
    const StreamHandle stream = thinking(R"(,"reasoning_budget":1)", prompt);
    const StreamHandle plain = open(context);
    prefill(plain, tokenize(context, prompt));
    for (const StreamHandle * each : {&stream, &plain}) set_trie(*each, payload_of(context, action_names), 0);
    const size_t n = pull(plain, 1).tokens.size();
    ASSERT_EQ(n, 1u);
    std::vector<int32_t> in_span = pull(stream, 1).tokens;
    while (stats(stream).trie_active != 0) {
        for (const int32_t token : pull(stream, 1).tokens) in_span.push_back(token);
    }
    std::string name = leaf(stream);
    EXPECT_EQ(in_span, tokenize(context, name));
    // The tokens of the label have used up the budget.
    const std::vector<int32_t> end = tokenize(context, "</plan>");
    EXPECT_EQ(pull(stream, end.size()).tokens, end);
}

TEST_F(Reasoning, ALazyGrammarIgnoresIt) {
    // The forced reasoning_message contains the grammar's trigger, which must be ignored inside the reasoning block.
    const std::string triggers = R"([{"type":"word","value":"go:"}])";
    ASSERT_EQ(eliza_inference_set_option(context.get(), "grammar_triggers", triggers.c_str(), nullptr), 0);
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = "root ::= \"go:\" [0-9] [0-9]";
    const auto text_of = [&](const std::string & message) {
        const StreamHandle stream = open(context, cfg);
        const std::string json = "{" + tags + R"(,"reasoning_budget":1,"reasoning_message":")" + message + "\"}";
        EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), nullptr), 0);
        prefill(stream, tokenize(context, "Say hello. <plan>"));
        const Output output = pull(stream, 30);
        EXPECT_GE(output.status, 0) << output.error;
        return output.text;
    };
    const std::string text = text_of(" go:");
    EXPECT_NE(text.find("go:</plan>"), std::string::npos) << text;
}

TEST_F(Reasoning, ErrorsNameTheReason) {
    const StreamHandle stream = open(context);
    const auto refused = [&](const std::string & json) {
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_set_sampling(stream.get(), json.data(), json.size(), error.out()),
                  ELIZA_ERR_INVALID_ARG);
        return error.text();
    };
    EXPECT_EQ(refused(R"({"reasoning_budget":-2})"),
              "option reasoning_budget: expected -1 (no limit) to 2147483647 tokens, got \"-2\"");
    EXPECT_EQ(refused(R"({"reasoning_budget":5,"reasoning_start":""})"),
              "reasoning_start: \"\" has no tokens in this vocabulary");
}

}  // namespace
}  // namespace eliza::test
