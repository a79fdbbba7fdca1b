// Conversations on disk. A restored conversation continues as if it had never been interrupted. An invalid file is
// rejected and changes nothing.

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "engine/cache/slot_file.h"
#include "posix.h"
#include "test_session.h"

namespace eliza::test {
namespace {

namespace fs = std::filesystem;

class SavedSlots : public testing::Test {
protected:
    fs::path folder = own_folder("slots");
    std::string path = (folder / "talk.slot").string();
    ContextHandle context = create({{"n_threads", "1"}});

    void SetUp() override { fs::create_directories(folder); }
    void TearDown() override { fs::remove_all(folder); }

    static int save(const StreamHandle & stream, const std::string & file, std::string * text = nullptr) {
        ErrorText error;
        const int status = eliza_inference_llm_stream_save_slot(stream.get(), file.c_str(), error.out());
        if (text != nullptr) *text = error.text();
        return status;
    }
    static int restore(const StreamHandle & stream, const std::string & file, std::string * text = nullptr) {
        ErrorText error;
        const int status = eliza_inference_llm_stream_restore_slot(stream.get(), file.c_str(), error.out());
        if (text != nullptr) *text = error.text();
        return status;
    }
    StreamHandle prompted(const std::string & question = "Tell me of the sea.") {
        StreamHandle stream = open(context);
        prefill(stream, chat_prompt(context, question));
        return stream;
    }
    std::string read() const {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string & bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

TEST_F(SavedSlots, ContinueWithoutAPrefillInAnotherProcess) {
    const StreamHandle stream = prompted("Who are you?");  // the answer has more than 16 tokens
    pull(stream, 4);
    ASSERT_EQ(save(stream, path), 0);
    const Output expected = pull(stream, 12);
    EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_NONE);
    context = create({{"n_threads", "1"}});  // like another process: another model object, another cache
    const StreamHandle restored = open(context);
    ASSERT_EQ(restore(restored, path), 0);
    EXPECT_EQ(pull(restored, 12).tokens, expected.tokens);
    // One pass for the logits of the last restored token, and then one pass per generated token.
    EXPECT_LE(stats(restored).forward_passes, 12);
    EXPECT_EQ(stats(restored).prompt_tokens, 0);
}

TEST_F(SavedSlots, IncludeTokensThatWereNotYetDecoded) {
    const StreamHandle stream = prompted(), plain = prompted();
    for (const StreamHandle * each : {&stream, &plain}) {
        set_trie(*each, payload_of(context, action_names), 0);
        while (stats(*each).trie_active != 0) pull(*each, 1);
    }
    ASSERT_EQ(save(stream, path), 0);
    const StreamHandle restored = open(context);
    ASSERT_EQ(restore(restored, path), 0);
    EXPECT_EQ(stats(restored).n_past, stats(plain).n_past);
    const Output expected = pull(plain, 6);
    EXPECT_EQ(pull(restored, 6).tokens, expected.tokens);
    EXPECT_EQ(pull(stream, 6).tokens, expected.tokens);
}

TEST_F(SavedSlots, DoNotIncludeADraft) {
    context = create({{"n_threads", "1"}}, f32_model_path());
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_k = cfg.cache_type_v = "f32";
    const StreamHandle plain = open(context, cfg);
    const std::string drafter = f32_model_path();
    cfg.draft_min = 1;
    cfg.draft_max = 6;
    cfg.mtp_drafter_path = drafter.c_str();
    const StreamHandle drafting = open(context, cfg), restored = open(context, cfg);
    std::vector<int32_t> tokens;
    for (const StreamHandle * each : {&plain, &drafting}) prefill(*each, chat_prompt(context, "hello"));
    while (tokens.size() < 4) {  // in the middle of a draft
        int32_t token = 0;
        size_t n = 0;
        char text[64];
        ASSERT_EQ(eliza_inference_llm_stream_next(drafting.get(), &token, 1, &n, text, sizeof text, nullptr, nullptr,
                                                  nullptr),
                  0);
        tokens.push_back(token);
    }
    EXPECT_EQ(pull(plain, 4).tokens, tokens);
    ASSERT_EQ(save(drafting, path), 0);
    ASSERT_EQ(restore(restored, path), 0);
    const std::vector<int32_t> expected = pull(plain, 10).tokens;
    for (const StreamHandle * each : {&drafting, &restored}) {
        std::vector<int32_t> got = pull(*each, 10).tokens;
        got.resize(std::min(got.size(), expected.size()));
        EXPECT_EQ(got, expected);
    }
}

TEST_F(SavedSlots, ReplaceAStreamsConversation) {
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const Output expected = pull(stream, 8);
    const StreamHandle other = prompted("Something quite different, and longer than that one?");
    pull(other, 5);
    set_trie(other, payload_of(context, action_names), 0);
    ASSERT_EQ(restore(other, path), 0);
    EXPECT_EQ(stats(other).trie_active, 0);
    EXPECT_EQ(pull(other, 8).tokens, expected.tokens);
    EXPECT_EQ(eliza_inference_llm_stream_reset(other.get()), 0);
    prefill(other, {30, 31});
    EXPECT_EQ(pull(other, 2).status, 0);
}

TEST_F(SavedSlots, RequireTheSameKindOfCache) {
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_k = "q8_0";
    const StreamHandle quantized = open(context, cfg);
    std::string error;
    EXPECT_EQ(restore(quantized, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("saved with another model or cache"), std::string::npos) << error;
    prefill(quantized, chat_prompt(context, "hello"));
    ASSERT_EQ(save(quantized, path), 0);
    const Output expected = pull(quantized, 5);
    const StreamHandle again = open(context, cfg);
    ASSERT_EQ(restore(again, path), 0);
    EXPECT_EQ(pull(again, 5).tokens, expected.tokens);
}

TEST_F(SavedSlots, OfAnotherModelAreRejected) {
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const ContextHandle other = create({{"n_threads", "1"}}, f32_model_path());
    const StreamHandle foreign = open(other);
    std::string error;
    EXPECT_EQ(restore(foreign, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("saved with another model or cache"), std::string::npos) << error;
}

TEST_F(SavedSlots, ThatAreDamagedAreRejectedAndChangeNothing) {
    const StreamHandle stream = prompted(), plain = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const std::string good = read();
    std::string error;
    const auto refused = [&](const std::string & bytes) {
        write(bytes);
        EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
        EXPECT_EQ(error.rfind("slot file " + path + ": ", 0), 0u) << error;
        return error.substr(("slot file " + path + ": ").size());
    };
    EXPECT_EQ(refused(""), "not a slot file");
    EXPECT_EQ(refused("GGUF and more"), "not a slot file");
    for (size_t size = 8; size < good.size(); size += 1 + good.size() / 40) {
        EXPECT_EQ(refused(good.substr(0, size)), "truncated or damaged") << size;
    }
    uint64_t fingerprint_size = 0;  // the size after the magic, the version and this number
    std::memcpy(&fingerprint_size, good.data() + 12, sizeof fingerprint_size);
    const size_t behind_fingerprint = 20 + fingerprint_size;
    for (size_t at = 12; at < good.size(); at += at < behind_fingerprint ? 1 : 1 + good.size() / 60) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x20);
        const std::string text = refused(bad);
        if (at < behind_fingerprint) {
            EXPECT_TRUE(text == "truncated or damaged" || text.rfind("saved with another model or cache: ", 0) == 0)
                << at << ": " << text;
        } else {
            EXPECT_EQ(text, "truncated or damaged") << at;
        }
    }
    std::string newer = good;
    newer[8] = 9;
    EXPECT_EQ(refused(newer).rfind("expected version 1 of the format, got 9", 0), 0u);
    fs::remove(path);
    EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("cannot be read"), std::string::npos) << error;
    EXPECT_EQ(restore(stream, folder.string(), &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_EQ(pull(stream, 8).tokens, pull(plain, 8).tokens);
}

// A manipulated file with a correct hash.
std::string with_state(const std::string & good, const std::function<void(std::string &)> & change) {
    size_t at = 12;  // the magic and the version
    for (int part = 0; part < 2; ++part) {
        uint64_t length = 0;
        std::memcpy(&length, good.data() + at, sizeof length);
        at += sizeof length + length;
    }
    std::string state = good.substr(at + 8, good.size() - at - 16);
    change(state);
    std::string bytes = good.substr(0, at);
    const uint64_t length = state.size();
    bytes.append(reinterpret_cast<const char *>(&length), sizeof length);
    bytes += state;
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
    return bytes.append(reinterpret_cast<const char *>(&hash), sizeof hash);
}

// Returns the answers to other prompts, whose tokens get the cells that a restored state used before.
std::vector<std::vector<int32_t>> answers_of(const ContextHandle & context) {
    std::vector<std::vector<int32_t>> answers;
    for (int32_t i = 0; i < 25; ++i) {
        const StreamHandle stream = open(context);
        prefill(stream, {60 + i, 100 + 3 * i, 40, 41 + i, 300 + i});
        answers.push_back(pull(stream, 4).tokens);
    }
    return answers;
}

TEST_F(SavedSlots, WithNanValuesAreRejectedAndDoNotAffectOthers) {
    const std::vector<std::vector<int32_t>> expected = answers_of(create({{"n_threads", "1"}}));
    {
        const StreamHandle stream = prompted();
        ASSERT_EQ(save(stream, path), 0);
    }
    const std::string good = read();
    for (const uint16_t value : {uint16_t{0x7e00}, uint16_t{0x7c00}, uint16_t{0xfc00}}) {
        for (const size_t from_end : {2, 2000, 6000}) {
            write(with_state(good, [&](std::string & state) {
                std::memcpy(&state[state.size() - from_end], &value, sizeof value);
            }));
            const StreamHandle stream = open(context);
            std::string error;
            EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
            EXPECT_EQ(error, "the saved state holds a value that is not a finite number");
        }
    }
    EXPECT_EQ(answers_of(context), expected);
}

TEST_F(SavedSlots, WithWrongCountsAndPositionsDoNotAffectOthers) {
    const std::vector<std::vector<int32_t>> expected = answers_of(create({{"n_threads", "1"}}));
    size_t n_cells = 0;
    {
        const StreamHandle stream = prompted();
        n_cells = static_cast<size_t>(stats(stream).n_past);
        ASSERT_EQ(save(stream, path), 0);
    }
    const std::string good = read();
    std::mt19937 random(3);
    int n_refused = 0;
    for (int round = 0; round < 300; ++round) {
        write(with_state(good, [&](std::string & state) {
            if (round % 4 == 0) {
                state.resize(random() % state.size());
                return;
            }
            if (round % 4 == 1) state += "more";
            // Everything before the values: counts, positions, sequences, layers.
            for (int i = 0; i < 3; ++i) {
                static const int32_t values[] = {0, 1, -1, 7, 4096, INT32_MAX, INT32_MIN};
                const int32_t value = values[random() % 7];
                std::memcpy(&state[8 + 4 * (random() % (2 + 3 * n_cells + 8))], &value, sizeof value);
            }
        }));
        const StreamHandle stream = open(context);
        n_refused += restore(stream, path) != 0 ? 1 : 0;
    }
    EXPECT_GT(n_refused, 200);
    EXPECT_EQ(answers_of(context), expected);
}

TEST_F(SavedSlots, RemoveTemporaryFilesOfAKilledProcess) {
    const auto leave = [&](const std::string & name) { std::ofstream(folder / name) << "half"; };
    leave("talk.slot.123-4.part");
    leave("talk.slot.99999-1.part");
    leave("talk.slot.x.part");       // an unrelated file
    leave("other.slot.123-4.part");  // belongs to another file
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    std::set<std::string> names;
    for (const auto & entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    EXPECT_EQ(names, (std::set<std::string>{"talk.slot", "talk.slot.x.part", "other.slot.123-4.part"}));
}

TEST_F(SavedSlots, CanBeSavedToOnePathByManyThreads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            SlotFile file{"fingerprint", {t}, std::vector<uint8_t>(1000, static_cast<uint8_t>(t))};
            for (int i = 0; i < 100; ++i) ASSERT_NO_THROW(write_slot_file(path, file));
        });
    }
    for (std::thread & thread : threads) thread.join();
    const SlotFile last = read_slot_file(path, "fingerprint", {1, 1000});
    EXPECT_EQ(last.state, std::vector<uint8_t>(1000, static_cast<uint8_t>(last.tokens[0])));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST_F(SavedSlots, ThatAreForeignAreNotRead) {
    {
        std::ofstream file(path, std::ios::binary);
        file << "GGUF";
        file.seekp((1ll << 40) - 1);  // a hole: a terabyte that uses no disk space
        file << "x";
        if (!file.good()) GTEST_SKIP() << "this file system does not support files of this size";
    }
    const StreamHandle stream = prompted();
    std::string error;
    EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_EQ(error, "slot file " + path + ": not a slot file");
}

TEST_F(SavedSlots, AreReadThroughALinkAndReplaceItWhenWritten) {
    SKIP_ON_WINDOWS("symbolic links require a privilege on Windows");
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const std::string link = (folder / "link.slot").string();
    fs::create_symlink(path, link);
    EXPECT_EQ(restore(stream, link), 0);
    ASSERT_EQ(save(stream, link), 0);
    EXPECT_FALSE(fs::is_symlink(link));
    EXPECT_TRUE(fs::exists(path));
}

TEST_F(SavedSlots, AreWrittenCompletelyOrNotAtAll) {
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const std::string before = read();
    std::string error;
    EXPECT_EQ(save(stream, (folder / "nowhere" / "a.slot").string(), &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("cannot be written"), std::string::npos) << error;
    EXPECT_EQ(save(stream, folder.string(), &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("the path exists and is not a regular file"), std::string::npos) << error;
    SKIP_ON_WINDOWS("the rest needs a limit on the size of files, which Windows does not have");
    // A file size limit has the same effect as a full disk.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{1024, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_EQ(save(stream, path, &error), ELIZA_ERR_FFI_FAULT);
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_NE(error.find("cannot be written"), std::string::npos) << error;
    EXPECT_EQ(read(), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "a temporary file was left";
    EXPECT_EQ(save(stream, path), 0);
}

TEST_F(SavedSlots, ThatDoNotFitLeaveTheStreamUnchanged) {
    const StreamHandle large = open(context);
    prefill(large, std::vector<int32_t>(180, 40));
    ASSERT_EQ(save(large, path), 0);
    const ContextHandle small = create({{"n_threads", "1"}, {"n_ctx", "256"}, {"n_slots", "2"}});
    const StreamHandle other = open(small), stream = open(small);
    prefill(other, std::vector<int32_t>(120, 41));
    const std::vector<int32_t> prompt = chat_prompt(small, "hello");
    prefill(stream, prompt);
    std::string error;
    EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("does not fit"), std::string::npos) << error;
    const ContextHandle fresh = create({{"n_threads", "1"}, {"n_ctx", "256"}});
    const StreamHandle plain = open(fresh);
    prefill(plain, prompt);
    EXPECT_EQ(pull(stream, 6).tokens, pull(plain, 6).tokens);
}

TEST_F(SavedSlots, NeedATokenAndRoom) {
    const StreamHandle empty = open(context);
    EXPECT_EQ(save(empty, path), ELIZA_ERR_INVALID_ARG);
    EXPECT_FALSE(fs::exists(path));
    const StreamHandle stream = open(context);
    prefill(stream, std::vector<int32_t>(300, 40));
    ASSERT_EQ(save(stream, path), 0);
    const ContextHandle small = create({{"n_threads", "1"}, {"n_ctx", "256"}, {"n_slots", "1"}});
    const StreamHandle narrow = open(small);
    std::string error;
    EXPECT_EQ(restore(narrow, path, &error), ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(error.rfind("context full", 0), 0u) << error;
    prefill(narrow, {30, 31});
    EXPECT_EQ(pull(narrow, 2).status, 0);
}

// The files are larger than any memory. The library must not read more of them than fits this context.
TEST_F(SavedSlots, OfAnySizeAreRejectedByTheirBeginning) {
    const StreamHandle stream = prompted();
    ASSERT_EQ(save(stream, path), 0);
    const std::string good = read();
    const auto grow = [&] { fs::resize_file(path, uintmax_t{1} << 40); };
    std::error_code is_too_large;
    fs::resize_file(path, uintmax_t{1} << 40, is_too_large);
    if (is_too_large) GTEST_SKIP() << "this file system does not support files of this size";
    std::string foreign = good, error;
    foreign[20] = static_cast<char>(foreign[20] ^ 1);  // in the fingerprint
    write(foreign);
    grow();
    EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.find("saved with another model or cache"), std::string::npos) << error;

    uint64_t fingerprint_size = 0;
    std::memcpy(&fingerprint_size, good.data() + 12, sizeof fingerprint_size);
    std::string longest = good;
    const uint64_t n_bytes = uint64_t{1} << 39;
    std::memcpy(longest.data() + 20 + fingerprint_size, &n_bytes, sizeof n_bytes);  // the size of the tokens
    write(longest);
    grow();
    EXPECT_EQ(restore(stream, path, &error), ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(pull(stream, 2).status, 0);
}

TEST_F(SavedSlots, MakeRoomByRemovingUnneededTokens) {
    context = create({{"n_threads", "1"}, {"n_ctx", "512"}, {"n_slots", "3"}});
    {
        const StreamHandle stream = open(context);
        prefill(stream, std::vector<int32_t>(200, 40));
        ASSERT_EQ(save(stream, path), 0);
    }
    for (const int token : {41, 42}) {
        const StreamHandle stream = open(context);
        prefill(stream, std::vector<int32_t>(150, token));
    }
    const StreamHandle restored = open(context);
    std::string error;
    EXPECT_EQ(restore(restored, path, &error), 0) << error;
    EXPECT_EQ(pull(restored, 2).status, 0);
}

TEST_F(SavedSlots, ARestoredConversationIsSavedWithoutAPass) {
    save(prompted(), path);
    const std::string first = read();
    const StreamHandle stream = open(context);
    ASSERT_EQ(restore(stream, path), 0);
    std::string text;
    EXPECT_EQ(save(stream, path, &text), 0) << text;
    EXPECT_EQ(stats(stream).forward_passes, 0);
    EXPECT_EQ(read().size(), first.size());
}

TEST_F(SavedSlots, AShortNameBesideSimilarNames) {
    const StreamHandle stream = prompted();
    for (const char * other : {"a.", "a.1", "a.123-4", "a.-", "a.part", "a.1.part.old", "a"}) {
        std::ofstream(folder / other) << "x";
    }
    std::string text;
    EXPECT_EQ(save(stream, (folder / "a").string(), &text), 0) << text;
    EXPECT_TRUE(fs::exists(folder / "a.1.part.old"));
    std::ofstream(folder / "a.17-3.part") << "x";  // an abandoned file
    EXPECT_EQ(save(stream, (folder / "a").string(), &text), 0) << text;
    EXPECT_FALSE(fs::exists(folder / "a.17-3.part"));
}

}  // namespace
}  // namespace eliza::test
