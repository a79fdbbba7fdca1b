// Speculation with a multi-token prediction head gives the same tokens as no speculation, on attention-only and
// recurrent models, whatever else happens to the stream.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/draft/drafter.h"
#include "engine/pass/sequence.h"
#include "mtp_test_model.h"
#include "test_session.h"

namespace eliza::test {
namespace {

const std::vector<std::string> prompts = {"Say hello. ", "one two three one two three one",
                                          "The user asks for a reminder at nine. Next action: "};

class Mtp : public testing::TestWithParam<MtpModelSpec> {
protected:
    static MtpModelSpec spec(MtpHead head, bool trunk = true) {
        MtpModelSpec spec = GetParam();
        spec.head = head;
        spec.trunk = trunk;
        return spec;
    }
    static ContextHandle context_of(MtpHead head, std::map<std::string, std::string> options = {}) {
        options.insert({{"n_ctx", "1024"}, {"n_threads", "1"}, {"n_slots", "3"}});
        return create(options, mtp_model_path(spec(head)));
    }
    static eliza_llm_stream_config_t drafting(int draft_max, const char * drafter = nullptr) {
        eliza_llm_stream_config_t cfg = full_precision_config();
        cfg.draft_min = draft_max > 0 ? 1 : 0;
        cfg.draft_max = draft_max;
        cfg.mtp_drafter_path = drafter;
        return cfg;
    }
    static std::vector<int32_t> generate(const StreamHandle & stream, size_t n) {
        Output output = pull(stream, n);
        EXPECT_GE(output.status, 0) << output.error;
        output.tokens.resize(std::min(n, output.tokens.size()));
        return output.tokens;
    }
    static std::vector<int32_t> run(const ContextHandle & context, const eliza_llm_stream_config_t & cfg,
                                    const std::string & prompt, size_t n = 40) {
        const StreamHandle stream = open(context, cfg);
        prefill(stream, tokenize(context, prompt, true));
        return generate(stream, n);
    }
};

TEST_P(Mtp, GivesTheSameTokens) {
    for (const MtpHead head : {MtpHead::agrees, MtpHead::random}) {
        const ContextHandle context = context_of(head);
        for (const std::string & prompt : prompts) {
            for (const int draft_max : {1, 3, 8}) {
                eliza_llm_stream_config_t cfg = drafting(draft_max), alone = drafting(0);
                EXPECT_EQ(run(context, cfg, prompt), run(context, alone, prompt));
                cfg.repeat_penalty = alone.repeat_penalty = 1.3f;
                EXPECT_EQ(run(context, cfg, prompt), run(context, alone, prompt));
                cfg.gbnf_grammar = alone.gbnf_grammar = "root ::= ([a-z] [a-z] [a-z] \" \")+";
                EXPECT_EQ(run(context, cfg, prompt), run(context, alone, prompt));
            }
        }
    }
}

TEST_P(Mtp, GivesTheSameDraws) {
    const ContextHandle context = context_of(MtpHead::random, {{"seed", "7"}});
    eliza_llm_stream_config_t cfg = drafting(4), alone = drafting(0);
    cfg.temperature = alone.temperature = 0.8f;
    for (const std::string & prompt : prompts) {
        EXPECT_EQ(run(context, cfg, prompt), run(context, alone, prompt));
    }
}

TEST_P(Mtp, AHeadThatAgreesSavesPasses) {
    const ContextHandle context = context_of(MtpHead::agrees);
    const StreamHandle alone = open(context, drafting(0)), with = open(context, drafting(4));
    for (const StreamHandle * stream : {&alone, &with}) {
        prefill(*stream, tokenize(context, prompts[0], true));
    }
    const int n_heads = GetParam().n_heads;  // if there are several, each predicts one token
    EXPECT_EQ(generate(with, 40), generate(alone, 40));
    const eliza_llm_stream_stats_t counts = stats(with);
    EXPECT_EQ(counts.tokens_accepted, counts.tokens_drafted);
    EXPECT_GT(counts.tokens_drafted, 20);
    EXPECT_LE(counts.forward_passes, stats(alone).forward_passes * 10 / (n_heads > 1 ? 10 * n_heads / 2 : 35));
}

TEST_P(Mtp, AHeadThatSometimesAgreesIsSometimesFollowed) {
    const ContextHandle context = context_of(MtpHead::random);
    int64_t drafted = 0, accepted = 0;
    for (const std::string & prompt : prompts) {
        const StreamHandle stream = open(context, drafting(4));
        prefill(stream, tokenize(context, prompt, true));
        generate(stream, 60);
        drafted += stats(stream).tokens_drafted;
        accepted += stats(stream).tokens_accepted;
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, drafted);
}

// A recurrent state can be restored to where a snapshot was made, within the last pass.
TEST_P(Mtp, RemovedTokensLeaveNoTrace) {
    Options options;
    options.n_ctx = 512;
    options.n_threads = 1;
    const std::shared_ptr<Model> model = Model::load(mtp_model_path(spec(MtpHead::random)), {});
    const std::vector<llama_token> tokens = model->tokenize(prompts[2], true, false);
    const auto decoder = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                                   DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}, 8});
    CancelFlag cancelled;
    const auto logits_behind = [&](Sequence & sequence) {
        const float * logits = sequence.logits();
        return std::vector<float>(logits, logits + model->n_vocab());
    };
    SlotWish first, second;
    first.id = 0;
    second.id = 1;
    Sequence fresh(decoder, second, cancelled);
    fresh.append(tokens.data(), tokens.size());
    const std::vector<float> expected = logits_behind(fresh);
    for (const size_t n_back : {1, 2, 5}) {
        for (const size_t last_pass : {1, 3, 6}) {
            Sequence sequence(decoder, first, cancelled);
            sequence.append(tokens.data(), tokens.size() - 1);
            logits_behind(sequence);
            for (size_t i = 0; i < 6; i += last_pass) {
                sequence.append(std::vector<llama_token>(last_pass, tokens[1]).data(), last_pass);
                logits_behind(sequence);
            }
            sequence.truncate(tokens.size() - 1 + 6 - n_back);
            sequence.append(tokens[2]);
            logits_behind(sequence);
            sequence.truncate(tokens.size() - 1);
            sequence.append(tokens.back());
            const std::vector<float> got = logits_behind(sequence);
            for (size_t i = 0; i < got.size(); ++i) {
                ASSERT_NEAR(got[i], expected[i], 1e-3) << n_back << " of passes of " << last_pass << ", token " << i;
            }
        }
    }
}

// Decoding the same tokens in a different way must leave the head in the same state.
TEST_P(Mtp, DraftsDoNotDependOnHowTokensWereDecoded) {
    Options options;
    options.n_ctx = 512;
    options.n_threads = 1;
    ModelSettings settings;
    settings.with_mtp_head = true;
    const std::shared_ptr<Model> model = Model::load(mtp_model_path(spec(MtpHead::random)), settings);
    const DecoderSettings in_full_precision{{GGML_TYPE_F32, GGML_TYPE_F32}, 8};
    const DraftConfig config{1, 4, ""};
    const std::vector<llama_token> tokens = model->tokenize(prompts[2] + prompts[1], true, false);

    // Decodes all but the last token in pieces of a given size, with a given number of wrong tokens decoded ahead of
    // each.
    const auto draft = [&](size_t piece, size_t n_wrong, int32_t n_batch) {
        options.n_batch = n_batch;
        const auto decoder = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads),
                                                       options, in_full_precision);
        CancelFlag cancelled;
        Sequence sequence(decoder, {}, cancelled);
        const std::unique_ptr<Drafter> drafter = Drafter::make(config, sequence, options);
        sequence.set_on_pass(
            [&](const llama_token * text, size_t begin, size_t end) { drafter->decode_pass(text, begin, end); });
        for (size_t i = 0; i + 1 < tokens.size(); i += piece) {
            sequence.append(tokens.data() + i, std::min(piece, tokens.size() - 1 - i));
            if (i > 0 && n_wrong > 0) {
                EXPECT_FALSE(drafter->draft(sequence.tokens(), 4).empty());
                sequence.decode_ahead(std::vector<llama_token>(n_wrong, tokens[0]));
            } else {
                sequence.decode(Rows::some);
            }
        }
        sequence.append(tokens.back());
        return drafter->draft(sequence.tokens(), 4);
    };
    const std::vector<llama_token> expected = draft(tokens.size(), 0, 512);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(draft(tokens.size(), 0, 11), expected);
    EXPECT_EQ(draft(3, 0, 512), expected);
    EXPECT_EQ(draft(1, 0, 512), expected);
    EXPECT_EQ(draft(1, 1, 512), expected);
    EXPECT_EQ(draft(1, 3, 512), expected);
}

TEST_P(Mtp, GivesTheSameTokensWhateverElseHappens) {
    const ContextHandle context = context_of(MtpHead::random);
    const std::string path =
        (std::filesystem::temp_directory_path() / ("eliza-mtp-slot-" + std::to_string(getpid()))).string();
    const auto story = [&](int draft_max) {
        std::vector<std::vector<int32_t>> told;
        const StreamHandle stream = open(context, drafting(draft_max));
        const StreamHandle other = open(context, drafting(0));
        prefill(stream, tokenize(context, prompts[0], true));
        prefill(other, tokenize(context, prompts[0], true));  // shares the first one's cells
        for (int i = 0; i < 5; ++i) {                         // in turns
            told.push_back(generate(other, 2));
        }
        // From here on, each generation runs to its end, because a step with a checked draft returns several tokens.
        eliza_inference_llm_stream_reset_keep(stream.get(), 4);
        prefill(stream, tokenize(context, prompts[2]));
        Output pushed = push(stream, 17);
        told.push_back(pushed.tokens);
        set_trie(stream, payload_of(context, {"REPLY", "REPEAT", "IGNORE", "CREATE_REMINDER"}), 0);
        told.push_back(push(stream, 9).tokens);
        EXPECT_EQ(eliza_inference_llm_stream_save_slot(stream.get(), path.c_str(), nullptr), 0);
        told.push_back(push(stream, 9).tokens);
        EXPECT_EQ(eliza_inference_llm_stream_restore_slot(stream.get(), path.c_str(), nullptr), 0);
        told.push_back(push(stream, 9).tokens);
        eliza_inference_llm_stream_reset(stream.get());
        prefill(stream, tokenize(context, prompts[1], true));
        told.push_back(push(stream, 20).tokens);
        return told;
    };
    const auto expected = story(0);
    EXPECT_EQ(story(4), expected);
    std::filesystem::remove(path);
}

TEST_P(Mtp, StreamsOnSeveralThreadsDraftConcurrently) {
    const ContextHandle context = context_of(MtpHead::random);
    std::vector<std::vector<int32_t>> expected;
    for (const std::string & prompt : prompts) {
        expected.push_back(run(context, drafting(0), prompt, 12));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < prompts.size(); ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 5; ++round) {  // one of them without drafts
                EXPECT_EQ(run(context, drafting(i == 0 ? 0 : 4), prompts[i], 12), expected[i]);
            }
        });
    }
    for (std::thread & thread : threads) thread.join();
}

TEST_P(Mtp, ContinuesAfterCancelsInPasses) {
    const ContextHandle context = context_of(MtpHead::random);
    const std::vector<int32_t> expected = run(context, drafting(0), prompts[0]);
    const StreamHandle stream = open(context, drafting(4));
    prefill(stream, tokenize(context, prompts[0], true));
    EXPECT_EQ(push_despite_cancels(stream, expected.size()), expected);
}

TEST_P(Mtp, SmallBatchesAndAFullContextChangeNothing) {
    for (const char * n_batch : {"1", "2", "3", "11", "17"}) {
        const ContextHandle context = context_of(MtpHead::random, {{"n_batch", n_batch}});
        for (const int draft_max : {3, 16}) {
            EXPECT_EQ(run(context, drafting(draft_max), prompts[2]), run(context, drafting(0), prompts[2]));
        }
    }
    std::vector<size_t> lengths;
    for (const int draft_max : {0, 4}) {
        const ContextHandle context = context_of(MtpHead::random, {{"n_ctx", "256"}});
        const StreamHandle first = open(context, drafting(draft_max)), second = open(context, drafting(draft_max));
        prefill(first, tokenize(context, prompts[0], true));
        prefill(second, tokenize(context, prompts[1], true));
        const Output until_full = push(first, 1000);
        EXPECT_EQ(until_full.status, ELIZA_ERR_CONTEXT_FULL);
        EXPECT_NE(until_full.error.find("context full"), std::string::npos) << until_full.error;
        lengths.push_back(until_full.tokens.size());
    }
    EXPECT_EQ(lengths[0], lengths[1]);
}

// Tokens that have left a sliding window may be gone when a stream steps back or another stream shares the window.
TEST_P(Mtp, StepsBackFurtherThanASlidingWindow) {
    const ContextHandle context = context_of(MtpHead::random);
    const StreamHandle stream = open(context, drafting(0)), other = open(context, drafting(0));
    prefill(stream, tokenize(context, prompts[2], true));
    prefill(other, tokenize(context, prompts[1], true));
    std::vector<int32_t> text = tokenize(context, prompts[2], true);
    for (int i = 0; i < 50; ++i) {
        for (const int32_t token : generate(stream, 3)) text.push_back(token);
        generate(other, 1);
    }
    eliza_inference_llm_stream_reset(other.get());
    prefill(other, tokenize(context, prompts[0], true));
    for (const int32_t token : generate(stream, 60)) text.push_back(token);
    const std::vector<int32_t> kept(text.begin(), text.begin() + 40);

    const StreamHandle sharing = open(context, drafting(0));
    prefill(sharing, kept);
    eliza_inference_llm_stream_reset_keep(stream.get(), 40);
    const ContextHandle fresh = context_of(MtpHead::random);
    const StreamHandle expected = open(fresh, drafting(0));
    prefill(expected, kept);
    const std::vector<int32_t> tokens = generate(expected, 12);
    EXPECT_EQ(generate(sharing, 12), tokens);
    EXPECT_EQ(generate(stream, 12), tokens);
}

TEST_P(Mtp, AHeadMayBeInASeparateFile) {
    const std::string head = mtp_model_path(spec(MtpHead::random, false));
    const ContextHandle with = context_of(MtpHead::random),
                        without = context_of(MtpHead::random, {{"mtp_head", "off"}});
    for (const std::string & prompt : prompts) {
        const StreamHandle one = open(with, drafting(3)), two = open(without, drafting(3, head.c_str()));
        prefill(one, tokenize(with, prompt, true));
        prefill(two, tokenize(without, prompt, true));
        EXPECT_EQ(push(one, 40).tokens, push(two, 40).tokens);
        EXPECT_EQ(stats(one).tokens_drafted, stats(two).tokens_drafted);
        EXPECT_EQ(stats(one).tokens_accepted, stats(two).tokens_accepted);
        EXPECT_GT(stats(two).tokens_drafted, 20);
    }
}

TEST_P(Mtp, WithoutAHeadEarlierTextIsRepeated) {
    std::vector<ContextHandle> contexts;
    contexts.push_back(context_of(MtpHead::random, {{"mtp_head", "off"}}));
    if (GetParam().arch != std::string("qwen35")) {  // llama.cpp does not load such a file with missing parts
        contexts.push_back(context_of(MtpHead::absent));
    }
    for (const ContextHandle & context : contexts) {
        eliza_llm_stream_config_t cfg = drafting(4);
        StreamHandle stream = open(context, cfg);
        prefill(stream, tokenize(context, prompts[0], true));
        push(stream, 20);
        EXPECT_EQ(stats(stream).tokens_drafted, 0);  // nothing repeats
        cfg.gbnf_grammar = "root ::= (\"one two three four \")+";
        stream = open(context, cfg);
        prefill(stream, tokenize(context, prompts[0], true));
        push(stream, 60);
        EXPECT_GT(stats(stream).tokens_drafted, 0);
    }
}

TEST_P(Mtp, AHeadThatDoesNotFitIsRejected) {
    const std::string head = mtp_model_path(spec(MtpHead::random, false));
    // It is not a complete model.
    const ContextHandle alone = create({{"n_ctx", "512"}}, head);
    const eliza_llm_stream_config_t plain = config();
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_open(alone.get(), &plain, error.out()), nullptr);
    EXPECT_EQ(error.text(), "the model " + head +
                                " contains only an MTP head: pass it as mtp_drafter_path of the model it was made for");
    // It belongs to another model.
    const ContextHandle other = create({{"n_ctx", "512"}}, f32_model_path());
    const eliza_llm_stream_config_t cfg = drafting(3, head.c_str());
    EXPECT_EQ(eliza_inference_llm_stream_open(other.get(), &cfg, error.out()), nullptr);
    EXPECT_NE(error.text().find("\": it was made for another model: expected architecture "), std::string::npos)
        << error.text();
    EXPECT_NE(error.text().find(", got " + std::string(GetParam().arch)), std::string::npos) << error.text();
}

INSTANTIATE_TEST_SUITE_P(Architectures, Mtp,
                         testing::Values(MtpModelSpec{"glm4moe", MtpHead::random},
                                         MtpModelSpec{"qwen35", MtpHead::random},
                                         MtpModelSpec{"step35", MtpHead::random},
                                         MtpModelSpec{"step35", MtpHead::random, 2}),
                         [](const auto & info) { return info.param.arch + std::to_string(info.param.n_heads); });

}  // namespace
}  // namespace eliza::test
