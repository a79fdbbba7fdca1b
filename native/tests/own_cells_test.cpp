// With kv_unified=off, each slot has its own cells of the KV cache: same results, and no slot takes room from another.

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "engine/cache/slots.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Options = std::map<std::string, std::string>;

ContextHandle create_separate(Options options = {}) {
    options.insert({{"n_ctx", "1024"}, {"n_threads", "1"}, {"kv_unified", "off"}});
    return create(options, f32_model_path());
}

eliza_llm_stream_config_t endless_config() {
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.gbnf_grammar = "root ::= [a-z ]{1999}";
    return cfg;
}

StreamHandle open_endless(const ContextHandle & context, int i) {
    StreamHandle stream = open(context, endless_config());
    prefill(stream, tokenize(context, "Request number " + std::to_string(i) + ": please answer all", true));
    return stream;
}

void on_threads(int n, const std::function<void(int)> & body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back(body, i);
    for (std::thread & thread : threads) thread.join();
}

TEST(OwnCells, GiveEachStreamTheSameTokensAsAloneInSharedPasses) {
    constexpr int n_streams = 8;
    const ContextHandle alone = create_separate({{"batching", "off"}}),
                        unified = create_separate({{"kv_unified", "on"}}), context = create_separate();
    std::vector<std::vector<int32_t>> expected, in_unified;
    for (int i = 0; i < n_streams; ++i) {
        expected.push_back(pull(open_endless(alone, i), 60).tokens);
        in_unified.push_back(pull(open_endless(unified, i), 60).tokens);
    }
    EXPECT_EQ(expected, in_unified);
    for (const int n_at_once : {n_streams, 3}) {
        std::vector<std::vector<int32_t>> got(static_cast<size_t>(n_at_once));
        std::atomic<int64_t> n_shared{0};
        on_threads(n_at_once, [&](int i) {
            const StreamHandle stream = open_endless(context, i);
            got[static_cast<size_t>(i)] = pull(stream, 60).tokens;
            n_shared += stats(stream).passes_shared;
        });
        EXPECT_EQ(got, std::vector<std::vector<int32_t>>(expected.begin(), expected.begin() + n_at_once));
        EXPECT_GT(n_shared, 0);
    }
}

TEST(OwnCells, EveryStreamHasTheWholeContext) {
    const ContextHandle context = create_separate({{"n_ctx", "256"}, {"n_slots", "3"}});
    std::vector<StreamHandle> streams;
    for (int i = 0; i < 3; ++i) {
        streams.push_back(open(context, full_precision_config()));
        prefill(streams.back(), std::vector<int32_t>(250, 300 + i));
        EXPECT_EQ(stats(streams.back()).n_past, 250);
    }
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_prefill(streams[0].get(), std::vector<int32_t>(7, 300).data(), 7, error.out()),
              ELIZA_ERR_CONTEXT_FULL);
    EXPECT_NE(error.text().find("does not fit the context of 256"), std::string::npos) << error.text();
}

TEST(OwnCells, AFullSlotEndsOnlyItsOwnStream) {
    const ContextHandle context = create_separate({{"n_ctx", "256"}, {"n_slots", "3"}});
    std::vector<StreamHandle> streams;
    for (int i = 0; i < 3; ++i) {
        streams.push_back(open(context, endless_config()));
        prefill(streams.back(), std::vector<int32_t>(i == 1 ? 240 : 20, 300 + i));
    }
    on_threads(3, [&](int i) { pull(streams[static_cast<size_t>(i)], 60); });
    EXPECT_EQ(stats(streams[1]).finish_reason, ELIZA_FINISH_CONTEXT_FULL);
    for (const size_t other : {0, 2}) {
        EXPECT_EQ(stats(streams[other]).generated_tokens, 60);
        EXPECT_EQ(stats(streams[other]).finish_reason, ELIZA_FINISH_NONE);
    }
}

TEST(OwnCells, ChooseAndScoreTheSame) {
    const ContextHandle separate = create_separate({{"flash_attn", "off"}}),
                        unified = create_separate({{"kv_unified", "on"}});
    std::vector<std::vector<double>> scores;
    std::vector<std::string> chosen;
    for (const ContextHandle * context : {&separate, &unified}) {
        const StreamHandle stream = open(*context, full_precision_config());
        prefill(stream, tokenize(*context, "The next action is ", true));
        set_trie(stream, payload_of(*context, action_names), ELIZA_TRIE_BEST_LEAF | ELIZA_TRIE_STOP_AT_LEAF);
        std::vector<double> each(action_names.size());
        ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), each.data(), each.size()),
                  static_cast<int>(each.size()));
        scores.push_back(each);
        pull(stream);
        chosen.push_back(leaf(stream));
    }
    EXPECT_EQ(chosen[0], chosen[1]);
    for (size_t i = 0; i < action_names.size(); ++i) EXPECT_NEAR(scores[0][i], scores[1][i], 1e-4);
}

TEST(OwnCells, ALongPromptOfAnotherSlotIsCopied) {
    const ContextHandle context = create_separate();
    const std::vector<int32_t> prompt = tokenize(context, std::string(200, 'x') + " please answer all", true);
    const auto open_long = [&](int32_t slot) {
        eliza_llm_stream_config_t cfg = endless_config();
        cfg.slot_id = slot;
        StreamHandle stream = open(context, cfg);
        prefill(stream, prompt);
        return stream;
    };
    const StreamHandle first = open_long(1), second = open_long(4);
    EXPECT_EQ(stats(first).prompt_tokens_reused, 0);
    EXPECT_GT(stats(second).prompt_tokens_reused, 100);
    EXPECT_EQ(pull(first, 20).tokens, pull(second, 20).tokens);
}

TEST(OwnCells, StreamsUseSlotsSideBySide) {
    SlotTable slots(8, /*side_by_side=*/true);
    SlotWish named;
    named.id = 4;
    std::vector<Slot *> taken = {&slots.acquire(named)};
    std::vector<llama_seq_id> ids;
    for (int i = 0; i < 4; ++i) {
        taken.push_back(&slots.acquire({}));
        ids.push_back(taken.back()->id);
    }
    EXPECT_EQ(ids, (std::vector<llama_seq_id>{5, 6, 7, 3}));
    slots.release(*taken[2]);  // slot 6
    EXPECT_EQ(slots.acquire({}).id, 6);
}

TEST(OwnCells, AreSavedAndRestoredOnlyIntoOwnCells) {
    const std::filesystem::path folder = own_folder("own_cells");
    std::filesystem::create_directories(folder);
    const std::string path = (folder / "talk.slot").string();
    const ContextHandle context = create_separate(), unified = create_separate({{"kv_unified", "on"}});
    const StreamHandle saved = open_endless(context, 1);
    ErrorText error;
    ASSERT_EQ(eliza_inference_llm_stream_save_slot(saved.get(), path.c_str(), error.out()), 0) << error.text();
    const StreamHandle restored = open(context, endless_config());
    ASSERT_EQ(eliza_inference_llm_stream_restore_slot(restored.get(), path.c_str(), error.out()), 0) << error.text();
    EXPECT_EQ(pull(restored, 20).tokens, pull(open_endless(context, 1), 20).tokens);
    const ContextHandle fewer = create_separate({{"n_slots", "3"}});
    for (const ContextHandle * context_of_other : {&unified, &fewer}) {
        const StreamHandle other = open(*context_of_other, endless_config());
        EXPECT_LT(eliza_inference_llm_stream_restore_slot(other.get(), path.c_str(), error.out()), 0);
    }
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace eliza::test
