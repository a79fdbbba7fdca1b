// Files whose paths or contents are unusual, or that are used by several programs at once.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "platform/files.h"
#include "posix.h"
#include "test_session.h"

namespace eliza::test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
protected:
    fs::path folder = own_folder("files");

    void SetUp() override {
        remove_tree(folder);
        fs::create_directories(folder);
    }
    void TearDown() override { remove_tree(folder); }

    // On Windows, std::filesystem::remove_all rejects long paths.
    static void remove_tree(const fs::path & root) {
        const fs::path path = path_of(root.u8string());
        if (kind_of(path) == FileKind::folder) {
            for (const fs::path & entry : entries_of(path)) remove_tree(entry);
        }
        fs::remove(path);
    }

    static void write(const fs::path & path, const std::string & bytes) {
        std::ofstream(path, std::ios::binary) << bytes;
    }
    static std::string read(const fs::path & path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    // Loads the model at this path, decodes, saves the stream next to the model, and continues the saved stream.
    static void use_model_at(const std::string & path) {
        const ContextHandle context = create({{"n_threads", "1"}}, path);
        ASSERT_NE(context, nullptr);
        const StreamHandle stream = open(context), restored = open(context);
        prefill(stream, chat_prompt(context, "hello"));
        const std::string slot = path + ".slot";
        ErrorText error;
        ASSERT_EQ(eliza_inference_llm_stream_save_slot(stream.get(), slot.c_str(), error.out()), 0) << error.text();
        ASSERT_EQ(eliza_inference_llm_stream_restore_slot(restored.get(), slot.c_str(), error.out()), 0)
            << error.text();
        EXPECT_EQ(pull(restored, 6).tokens, pull(stream, 6).tokens);
        EXPECT_EQ(kind_of(path_of(slot)), FileKind::regular);
    }
};

constexpr const char * unusual_name = "a model \u00e4\u00f8 \u6a21\u578b \U0001F600";

TEST_F(Files, MayHaveSpacesAndCharactersOfEveryLanguageInTheirPaths) {
    const fs::path inner = folder / fs::u8path(unusual_name);
    fs::create_directories(inner);
    const fs::path model = inner / fs::u8path(std::string(unusual_name) + ".gguf");
    fs::copy_file(path_of(model_path()), model);
    use_model_at(model.u8string());
}

TEST_F(Files, MayHaveLongPaths) {
    std::string path = folder.u8string();
    while (path.size() < 400) {
        path += "/" + std::string(60, 'x');
        fs::create_directory(path_of(path));
    }
    path += "/model.gguf";
    fs::copy_file(path_of(model_path()), path_of(path));
    use_model_at(path);
}

TEST_F(Files, ABundleMayHaveAnUnusualOrLongPath) {
    std::string path = (folder / fs::u8path(unusual_name)).u8string();
    for (int i = 0; i < 4; ++i) path += "/" + std::string(60, 'b');
    fs::create_directories(path_of(path + "/text"));
    fs::copy_file(path_of(model_path()), path_of(path + "/text/model.gguf"));
    const ContextHandle context = create({{"n_threads", "1"}}, path);
    ASSERT_NE(context, nullptr);
    EXPECT_FALSE(tokenize(context, "hello").empty());
}

TEST_F(Files, AreReadByteByByte) {
    const std::string bytes("a\r\nb\n\x1a after the end-of-file character of DOS\r\n\0", 47);
    const fs::path path = folder / "bytes";
    {
        const File file = create_file_in_use(path);
        ASSERT_NE(file, nullptr);
        ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file.get()), bytes.size());
        EXPECT_TRUE(std::fflush(file.get()) == 0 && wait_until_on_disk(file.get()));
    }
    EXPECT_EQ(read(path), bytes);
    const File file = open_regular_file(path.u8string());
    ASSERT_NE(file, nullptr);
    std::string found(100, '\0');
    found.resize(std::fread(found.data(), 1, found.size(), file.get()));
    EXPECT_EQ(found, bytes);
    EXPECT_EQ(seek(file.get(), 3), 0);
    EXPECT_EQ(std::fgetc(file.get()), 'b');
}

TEST_F(Files, GrammarsAndPayloadsMayHaveWindowsLineEnds) {
    const ContextHandle context = create({{"n_threads", "1"}});
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = "# a comment\r\nroot ::= item item\r\n\r\nitem ::= (\r\n  \"a\" |\r\n  \"b\"\r\n)\r\n";
    const StreamHandle follows_grammar = open(context, cfg), has_trie = open(context);
    prefill(follows_grammar, chat_prompt(context, "hello"));
    const std::string text = pull(follows_grammar).text;
    EXPECT_EQ(text.size(), 2u) << text;
    EXPECT_EQ(text.find_first_not_of("ab"), std::string::npos) << text;
    std::string lines;
    for (const char character : payload_of(context, {"REPLY", "IGNORE"})) {
        lines += character == ',' ? ",\r\n" : std::string(1, character);
    }
    EXPECT_EQ(eliza_inference_set_token_trie(has_trie.get(), lines.data(), lines.size(), 0), 0);
}

TEST_F(Files, AreNotDeletedWhileTheyAreWritten) {
    const fs::path path = folder / "part";
    {
        const File file = create_file_in_use(path);
        ASSERT_NE(file, nullptr);
        EXPECT_EQ(create_file_in_use(path), nullptr) << "a second writer got the same file";
        EXPECT_TRUE(fs::exists(path));
        remove_unless_in_use(path);
        EXPECT_TRUE(fs::exists(path));
    }
    remove_unless_in_use(path);
    EXPECT_FALSE(fs::exists(path));
}

TEST_F(Files, HaveAnotherVersionOnceTheyAreReplacedOrWritten) {
    const fs::path path = folder / "file", other = folder / "other";
    EXPECT_EQ(version_of_file(path.u8string()), "");
    write(path, "same size");
    write(other, "size same");
    const auto time = fs::last_write_time(path);
    fs::last_write_time(other, time);
    const std::string before = version_of_file(path.u8string());
    EXPECT_EQ(version_of_file(path.u8string()), before);
    fs::rename(other, path);
    EXPECT_NE(version_of_file(path.u8string()), before);
}

TEST_F(Files, OpenFoldersAreNotRegularFiles) {
    errno = 1;
    EXPECT_EQ(open_regular_file(folder.u8string()), nullptr);
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(open_regular_file((folder / "nothing").u8string()), nullptr);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(Files, ASlotIsSavedUnderARelativePath) {
    const fs::path before = fs::current_path();
    const ContextHandle context = create({{"n_threads", "1"}}, fs::absolute(model_path()).u8string());
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    fs::current_path(folder);
    const int status = eliza_inference_llm_stream_save_slot(stream.get(), "talk.slot", nullptr);
    fs::current_path(before);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(kind_of(folder / "talk.slot"), FileKind::regular);
}

// POSIX replaces an open file, and its readers keep the old one. Windows rejects that; then nothing is changed.
TEST_F(Files, ASavedSlotReplacesAnOpenFileOrFailsWithoutAChange) {
    const ContextHandle context = create({{"n_threads", "1"}});
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    const fs::path path = folder / "talk.slot";
    ErrorText error;
    const auto save = [&] {
        return eliza_inference_llm_stream_save_slot(stream.get(), path.u8string().c_str(), error.out());
    };
    ASSERT_EQ(save(), 0) << error.text();
    const std::string before = read(path);
    pull(stream, 3);
    {
        std::ifstream reader(path, std::ios::binary);
        ASSERT_TRUE(reader.good());
        if (is_windows) {
            EXPECT_EQ(save(), ELIZA_ERR_FFI_FAULT);
            EXPECT_NE(error.text().find("cannot be renamed"), std::string::npos) << error.text();
            EXPECT_EQ(read(path), before);
        } else {
            EXPECT_EQ(save(), 0) << error.text();
            EXPECT_NE(read(path), before);
        }
        const std::string seen{std::istreambuf_iterator<char>(reader), {}};
        EXPECT_EQ(seen, before);
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "a temporary file was left";
    EXPECT_EQ(save(), 0) << error.text();
    EXPECT_NE(read(path), before);
}

TEST_F(Files, TheModelsFileCanBeReadWhileTheModelIsOpen) {
    const fs::path path = folder / "model.gguf";
    fs::copy_file(path_of(model_path()), path);
    const ContextHandle context = create({{"n_threads", "1"}}, path.u8string());
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    EXPECT_EQ(read(path), read(path_of(model_path())));
    EXPECT_EQ(pull(stream, 3).tokens.size(), 3u);
}

}  // namespace
}  // namespace eliza::test
