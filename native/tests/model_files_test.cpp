// Model files that are replaced or written to while programs run.

#include <filesystem>
#include <fstream>

#include "posix.h"
#include "test_session.h"

namespace eliza::test {
namespace {

namespace fs = std::filesystem;

class ModelFiles : public testing::Test {
protected:
    fs::path folder = own_folder("model-files");
    std::string path = (folder / "model.gguf").string();

    void SetUp() override {
        fs::create_directories(folder);
        fs::copy_file(model_path(), path);
    }
    void TearDown() override { fs::remove_all(folder); }

    // Replaces the file by renaming another one, as a download does when it is finished.
    void replace_with(const std::string & other) const {
        fs::copy_file(other, path + ".part");
        fs::rename(path + ".part", path);
    }
};

constexpr const char * cannot_replace = "Windows does not allow programs to replace the file of an open model";

TEST_F(ModelFiles, AreSharedWhileUnchanged) {
    const auto first = Model::load(path, {});
    EXPECT_EQ(Model::load(path, {}), first);
    EXPECT_EQ(first->fingerprint(), load_model()->fingerprint());  // the same contents in another file
}

TEST_F(ModelFiles, AreReloadedAfterTheyAreReplaced) {
    SKIP_ON_WINDOWS(cannot_replace);
    const auto first = Model::load(path, {});
    replace_with(f32_model_path());
    const auto second = Model::load(path, {});
    EXPECT_NE(second, first);
    EXPECT_NE(second->fingerprint(), first->fingerprint());
    EXPECT_EQ(second->fingerprint(), Model::load(f32_model_path(), {})->fingerprint());
}

TEST_F(ModelFiles, HaveDifferentFingerprintsIfTheirHeadersDiffer) {
    // Changes one byte of the header. A fingerprint of samples could miss it.
    const auto first = Model::load(path, {});
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    std::string bytes(1 << 20, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(file.gcount()));
    const std::string name = "general.name";
    const size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos);
    const size_t value = at + name.size() + 4 + 8;  // after its type and its length
    file.clear();
    file.seekp(static_cast<std::streamoff>(value));
    file.put(static_cast<char>(bytes[value] ^ 1));
    file.close();
    EXPECT_NE(Model::load(path, {})->fingerprint(), first->fingerprint());
}

TEST_F(ModelFiles, RejectSlotFilesOfTheirPredecessor) {
    SKIP_ON_WINDOWS(cannot_replace);
    const std::string slot_file = (folder / "talk.slot").string();
    const ContextHandle before = create({{"n_threads", "1"}}, path);
    const StreamHandle stream = open(before);
    prefill(stream, chat_prompt(before, "hello"));
    replace_with(f32_model_path());
    const ContextHandle after = create({{"n_threads", "1"}}, path);
    const StreamHandle other = open(after);
    ErrorText error;
    // This context still has the old weights, although the model file was replaced. Its slot file belongs to those
    // weights.
    ASSERT_EQ(eliza_inference_llm_stream_save_slot(stream.get(), slot_file.c_str(), error.out()), 0) << error.text();
    EXPECT_EQ(eliza_inference_llm_stream_restore_slot(other.get(), slot_file.c_str(), error.out()),
              ELIZA_ERR_FFI_FAULT);
    EXPECT_NE(error.text().find("saved with another model or cache"), std::string::npos) << error.text();
    const StreamHandle again = open(before);
    EXPECT_EQ(eliza_inference_llm_stream_restore_slot(again.get(), slot_file.c_str(), error.out()), 0) << error.text();
}

TEST_F(ModelFiles, ThatAreEmptyAreReported) {
    fs::resize_file(path, 0);
    ErrorText error;
    EXPECT_EQ(eliza_inference_create(path.c_str(), error.out()), nullptr);
    EXPECT_EQ(error.text(), path + " is not a GGUF file: it is empty");
}

TEST_F(ModelFiles, InAFolderThatIsNotABundleAreReported) {
    const auto error_of = [](const fs::path & path) {
        ErrorText error;
        EXPECT_EQ(eliza_inference_create(path.string().c_str(), error.out()), nullptr);
        return error.text();
    };
    const std::string begin = folder.string() + " is not a model bundle: expected a model file, or a folder with a " +
                              "model in its folder text/; ";
    EXPECT_EQ(error_of(folder), begin + "pass the path of the model in it: " + path);
    fs::rename(path, folder / "model.safetensors");
    EXPECT_EQ(error_of(folder), begin + "its model is not in the GGUF format: fetch the model as a .gguf file, or " +
                                    "convert it with llama.cpp's convert_hf_to_gguf.py");
    fs::remove(folder / "model.safetensors");
    EXPECT_EQ(error_of(folder), begin + "there is no .gguf file in it");
}

}  // namespace
}  // namespace eliza::test
