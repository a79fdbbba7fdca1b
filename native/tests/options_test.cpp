#include "engine/base/options.h"

#include <gtest/gtest.h>

#include "error.h"
#include "parse_value.h"

namespace eliza {
namespace {

std::string error_of(const std::string & key, const std::string & value, ContextStage stage = ContextStage::created) {
    Options options;
    try {
        set_option(options, stage, key, value);
    } catch (const Error & error) {
        return error.what();
    }
    return "";
}

TEST(Options, AreSetByName) {
    Options options;
    const auto set = [&](const char * key, const char * value) {
        set_option(options, ContextStage::created, key, value);
    };
    set("n_ctx", "4096");
    set("n_slots", "3");
    set("flash_attn", "off");
    set("seed", "42");
    set("min_p", "0.05");
    set("strategy", "token-by-token");
    set("grammar_order", "first");
    set("model_id", "my model");
    EXPECT_EQ(options.n_ctx, 4096);
    EXPECT_EQ(options.n_slots, 3);
    EXPECT_EQ(options.flash_attn, LLAMA_FLASH_ATTN_TYPE_DISABLED);
    EXPECT_EQ(options.sampling.seed, 42u);
    EXPECT_FLOAT_EQ(options.sampling.min_p, 0.05f);
    EXPECT_EQ(options.strategy, Strategy::token_by_token);
    EXPECT_EQ(options.grammar_order, GrammarOrder::first);
    EXPECT_EQ(options.model_id, "my model");
    set("seed", "random");
    EXPECT_EQ(options.sampling.seed, LLAMA_DEFAULT_SEED);
}

TEST(Options, ErrorsNameTheOptionAndTheAllowedValues) {
    EXPECT_EQ(error_of("n_slots", "0"), "option n_slots: expected 1 to 64, got \"0\"");
    EXPECT_EQ(error_of("n_slots", "65"), "option n_slots: expected 1 to 64, got \"65\"");
    EXPECT_EQ(error_of("n_ctx", "many"), "option n_ctx: expected 0 (from the model) to 16777216 tokens, got \"many\"");
    EXPECT_EQ(error_of("n_ctx", "12x"), "option n_ctx: expected 0 (from the model) to 16777216 tokens, got \"12x\"");
    EXPECT_EQ(error_of("min_p", "nan"), "option min_p: expected 0 (off) to 1, got \"nan\"");
    EXPECT_EQ(error_of("strategy", ""), "option strategy: expected auto, tree, skip-ahead or token-by-token, got \"\"");
    EXPECT_NE(error_of("n_context", "1").find("unknown option \"n_context\"; known options: n_gpu_layers, "),
              std::string::npos);
}

TEST(Options, CannotBeSetOnceTheyAreInUse) {
    EXPECT_EQ(error_of("n_gpu_layers", "1", ContextStage::model_loaded),
              "option n_gpu_layers: too late; set it before the model is loaded");
    EXPECT_EQ(error_of("n_ctx", "512", ContextStage::model_loaded), "");
    EXPECT_EQ(error_of("n_ctx", "512", ContextStage::stream_opened),
              "option n_ctx: too late; set it before the first stream is opened");
    EXPECT_EQ(error_of("seed", "1", ContextStage::stream_opened), "");
}

TEST(Numbers, BothParsersGiveTheSameResult) {
    for (const char * text : {"0",      "1",      "-1.5", "0.25", ".5",    "5.", "1e3", "1E-3", "1e+3",  "-0",
                              "0.1",    "3.4e38", "007",  "",     " 1",    "1 ", "+1",  "--1",  "1e",    "1e400",
                              "-1e400", "1x",     "0x10", "1,5",  "1.2.3", "e5", ".",   "-",    "1_000", "1\n"}) {
        float one = -7.0f, other = -7.0f;
        const bool is_number = read_number(text, one);
        EXPECT_EQ(read_number_from_stream(text, other), is_number) << text;
        if (is_number) {
            EXPECT_EQ(other, one) << text;
        }
    }
}

TEST(Options, StayUnchangedAfterARejectedValue) {
    Options options;
    EXPECT_THROW(set_option(options, ContextStage::created, "n_batch", "-5"), Error);
    EXPECT_EQ(options.n_batch, 512);
}

}  // namespace
}  // namespace eliza
