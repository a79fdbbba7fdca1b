// Files that would make llama.cpp end the process or never return are rejected before it reads them. Files that it can
// load are accepted.

#include "engine/model/gguf_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "engine/model/abort_guard.h"
#include "engine/model/model.h"
#include "error.h"
#include "ggml-cpp.h"
#include "posix.h"
#include "test_model.h"

namespace eliza::test {
namespace {

namespace fs = std::filesystem;

// The header of a small model without tensor data, because only the header is checked.
class Header {
public:
    Header() : gguf_(gguf_init_empty()), memory_(ggml_init({size_t{1} << 20, nullptr, true})) {
        text("general.architecture", "llama");
        number("llama.block_count", 2);
        number("llama.context_length", 128);
        number("llama.embedding_length", 64);
        number("llama.attention.head_count", 4);
        real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
        text("tokenizer.ggml.model", "llama");
        texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "b"});
        add("token_embd.weight", GGML_TYPE_F16, {64, 5});
        add("output_norm.weight", GGML_TYPE_F32, {64});
        add("blk.0.attn_q.weight", GGML_TYPE_Q8_0, {64, 64});
    }

    void text(const char * key, const char * value) { gguf_set_val_str(gguf_.get(), key, value); }
    void number(const char * key, uint32_t value) { gguf_set_val_u32(gguf_.get(), key, value); }
    void real(const char * key, float value) { gguf_set_val_f32(gguf_.get(), key, value); }
    void flag(const char * key, bool value) { gguf_set_val_bool(gguf_.get(), key, value); }
    void short_number(const char * key, uint16_t value) { gguf_set_val_u16(gguf_.get(), key, value); }
    void texts(const char * key, std::vector<const char *> values) {
        gguf_set_arr_str(gguf_.get(), key, values.data(), values.size());
    }
    void numbers(const char * key, std::vector<uint32_t> values) {
        gguf_set_arr_data(gguf_.get(), key, GGUF_TYPE_UINT32, values.data(), values.size());
    }
    void kinds(std::vector<int32_t> values) {
        gguf_set_arr_data(gguf_.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, values.data(), values.size());
    }
    void remove(const char * key) { gguf_remove_key(gguf_.get(), key); }
    void add(const char * name, ggml_type type, std::vector<int64_t> size) {
        ggml_tensor * tensor = ggml_new_tensor(memory_.get(), type, static_cast<int>(size.size()), size.data());
        ggml_set_name(tensor, name);
        gguf_add_tensor(gguf_.get(), tensor);
    }
    void retype(const char * name, ggml_type type) { gguf_set_tensor_type(gguf_.get(), name, type); }

    std::string bytes() const {
        std::string data(gguf_get_meta_size(gguf_.get()), '\0');
        gguf_get_meta_data(gguf_.get(), data.data());
        return data;
    }

private:
    gguf_context_ptr gguf_;
    ggml_context_ptr memory_;
};

class GgufCheck : public testing::Test {
protected:
    fs::path folder = own_folder("gguf-check");

    void SetUp() override { fs::create_directories(folder); }
    void TearDown() override { fs::remove_all(folder); }

    std::string write(const std::string & bytes, const std::string & name = "model.gguf") const {
        std::ofstream(folder / name, std::ios::binary) << bytes;
        return (folder / name).string();
    }

    // Returns the message of the Error without the folder, or "".
    std::string refusal(const std::string & path,
                        const std::function<void(const std::string &)> & check = check_model_file) const {
        try {
            check(path);
        } catch (const Error & error) {
            EXPECT_EQ(error.status(), ELIZA_ERR_BUNDLE_INVALID);
            const std::string text = error.what(), prefix = (folder / "").string();
            EXPECT_EQ(text.rfind(prefix, 0), 0u) << text;
            return text.substr(std::min(prefix.size(), text.size()));
        }
        return "";
    }
    std::string refusal_of(const std::function<void(Header &)> & change) const {
        Header header;
        change(header);
        return refusal(write(header.bytes()));
    }
};

TEST_F(GgufCheck, AcceptsValidFiles) {
    EXPECT_EQ(refusal_of([](Header &) {}), "");
    EXPECT_NO_THROW(check_model_file(model_path()));
    EXPECT_NO_THROW(check_model_file(f32_model_path()));
}

TEST_F(GgufCheck, AcceptsTheVocabulariesOfWellKnownModels) {
    size_t n = 0;
    for (const auto & entry : fs::directory_iterator(ELIZA_TEST_VOCABULARIES)) {
        if (entry.path().extension() != ".gguf") continue;
        EXPECT_NO_THROW(check_model_file(entry.path().string())) << entry.path();
        ++n;
    }
    EXPECT_GT(n, 10u);
}

TEST_F(GgufCheck, ErrorsNameTheKeyItsValueAndTheLimit) {
    EXPECT_EQ(refusal_of([](Header & h) { h.number("llama.block_count", 0); }),
              "model.gguf: llama.block_count is 0; expected 1 to 512");
}

struct Case {
    const char * name;
    void (*change)(Header &);
    const char * reason;
};

void PrintTo(const Case & c, std::ostream * out) { *out << c.name; }

const Case cases[] = {
    {"NoArchitecture", [](Header & h) { h.remove("general.architecture"); }, "general.architecture is missing"},
    {"TooManyLayers", [](Header & h) { h.number("llama.block_count", 513); }, "block_count is 513; "},
    {"NoLayers", [](Header & h) { h.remove("llama.block_count"); }, "block_count is missing"},
    {"AllLayersAreHeads", [](Header & h) { h.number("llama.nextn_predict_layers", 2); }, "nextn_predict_layers is 2; "},
    {"ALayerWithARouterUsesNoExperts",
     [](Header & h) {
         h.number("llama.expert_count", 8);
         h.numbers("llama.expert_used_count", {2, 0});
         h.add("blk.1.ffn_gate_inp.weight", GGML_TYPE_F32, {64, 8});
     },
     "expert_used_count[1] is 0"},
    {"NegativeEpsilon", [](Header & h) { h.real("llama.attention.layer_norm_rms_epsilon", -1.0f); }, "epsilon is -1.0"},
    {"EpsilonIsNotANumber", [](Header & h) { h.real("llama.attention.layer_norm_rms_epsilon", NAN); },
     "epsilon is nan"},
    {"ContextBeyondSignedNumbers", [](Header & h) { h.number("llama.context_length", 1u << 31); },
     "context_length is 2147483648"},
    {"EmbeddingsWiderThanTheModel", [](Header & h) { h.number("llama.embedding_length_out", 65); },
     "embedding_length_out is 65; "},
    {"HeadsWhoseSizesWrapAround", [](Header & h) { h.number("llama.attention.head_count_kv", 0x40000004); },
     "head_count_kv is 1073741828; "},
    {"SizeOfHeadsWrapsAround", [](Header & h) { h.number("llama.attention.key_length", 1u << 30); },
     "key_length is 1073741824; "},
    {"OddRotation", [](Header & h) { h.number("llama.rope.dimension_count", 15); }, "dimension_count is 15; "},
    {"MoreRotatedThanAHeadHas", [](Header & h) { h.number("llama.rope.dimension_count", 18); },
     "dimension_count is 18; expected an even number of at most 16"},
    {"MoreRotatedInAWindow",
     [](Header & h) {
         h.number("llama.attention.sliding_window", 64);
         h.number("llama.rope.dimension_count_swa", 18);
     },
     "dimension_count_swa is 18; "},
    {"MoreRotatedInAWindowOfUnknownSize",
     [](Header & h) {
         h.number("llama.attention.sliding_window_pattern", 2);
         h.number("llama.rope.dimension_count_swa", 18);
     },
     "dimension_count_swa is 18; "},
    {"AnAssistantWithOtherLayers",
     [](Header & h) {
         h.text("general.architecture", "gemma4-assistant");
         h.number("gemma4-assistant.block_count", 2);
         h.number("gemma4-assistant.nextn_predict_layers", 1);
     },
     "nextn_predict_layers is 1; "},
    {"PositionsWithoutParts",
     [](Header & h) {
         h.text("general.architecture", "qwen2vl");
         h.number("qwen2vl.block_count", 2);
         h.number("qwen2vl.embedding_length", 64);
         h.number("qwen2vl.attention.head_count", 4);
         h.numbers("qwen2vl.rope.dimension_sections", {0, 0, 0, 8});
     },
     "qwen2vl.rope.dimension_sections is missing, or"},
    {"PartsOfAPositionBeyondAHead",
     [](Header & h) {
         h.text("general.architecture", "glm4");
         h.number("glm4.block_count", 2);
         h.number("glm4.embedding_length", 64);
         h.number("glm4.attention.head_count", 4);
         h.numbers("glm4.rope.dimension_sections", {8, 8, 1, 0xFFFFFFFF});
     },
     "rope.dimension_sections add up to 4294967312; expected at most 16, the size of a head"},
    {"NormsOfHalfPrecision", [](Header & h) { h.retype("output_norm.weight", GGML_TYPE_F16); },
     "output_norm.weight has the type f16; norms, biases and scales must be f32"},
    {"BiasesOfHalfPrecision", [](Header & h) { h.add("blk.0.attn_q.bias", GGML_TYPE_BF16, {64}); },
     "blk.0.attn_q.bias has the type bf16"},
    {"StatesOfHalfPrecision", [](Header & h) { h.add("blk.0.ssm_a", GGML_TYPE_F16, {64}); },
     "blk.0.ssm_a has the type f16"},
    {"ConvolutionsOfHalfPrecision", [](Header & h) { h.add("blk.0.ssm_conv1d.weight", GGML_TYPE_F16, {4, 64}); },
     "blk.0.ssm_conv1d.weight has the type f16"},
    {"WholeNumbersAsWeights", [](Header & h) { h.retype("token_embd.weight", GGML_TYPE_I32); },
     "token_embd.weight has the type i32"},
    {"NoVocabulary", [](Header & h) { h.text("tokenizer.ggml.model", "none"); }, "has no vocabulary"},
    {"NoTokens", [](Header & h) { h.remove("tokenizer.ggml.tokens"); }, "tokens is missing or empty"},
    {"NoFirstTokenToAdd", [](Header & h) { h.texts("tokenizer.ggml.tokens", {"a"}); },
     "bos_token_id is not one of the 1"},
    {"NoLastTokenToAdd",
     [](Header & h) {
         h.flag("tokenizer.ggml.add_eos_token", true);
         h.texts("tokenizer.ggml.tokens", {"a", "b"});
     },
     "eos_token_id is not one of the 2"},
    {"NoSeparatorToAdd",
     [](Header & h) {
         h.text("tokenizer.ggml.model", "bert");
         h.number("tokenizer.ggml.bos_token_id", 1);
     },
     "seperator_token_id is not one of the 5"},
    {"BytesOfATokenizerThatHasNone",
     [](Header & h) {
         h.text("tokenizer.ggml.model", "bert");
         h.number("tokenizer.ggml.bos_token_id", 1);
         h.number("tokenizer.ggml.seperator_token_id", 2);
         h.kinds({1, 1, 1, 1, 6});
     },
     "token_type has byte tokens"},
    {"WordsWithSpaces",
     [](Header & h) {
         h.text("tokenizer.ggml.model", "gpt2");
         h.text("tokenizer.ggml.pre", "whitespace");
     },
     "expected \"whitespace\" or \"gemma4\""},
    {"ATokenizerThatNeverEnds",
     [](Header & h) {
         h.text("tokenizer.ggml.model", "rwkv");
         h.texts("tokenizer.ggml.tokens", {"a", "ab", "\\x62", "\\ncd"});
     },
     "tokens begin with the byte 10, which is not a token itself"},
    {"ATreeAsDeepAsAToken",
     [](Header & h) {
         const std::string deep(5000, 'a');
         h.text("tokenizer.ggml.model", "t5");
         h.texts("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", deep.c_str()});
     },
     "tokens[3] is 5000 bytes long; the limit for this tokenizer is 4096"},
    {"EndsOfATokenThatFillMemory",
     [](Header & h) {
         const std::string huge(70'000, 'a');
         h.text("tokenizer.ggml.model", "plamo2");
         h.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", huge.c_str()});
     },
     "too long for a PLaMo tokenizer"},
    {"APartWithoutTheName", [](Header & h) { h.short_number("split.count", 2); },
     "expected the first one, whose name ends in \"-00001-of-00002.gguf\": pass the path of that file"},
    {"ALaterPart",
     [](Header & h) {
         h.remove("general.architecture");
         h.short_number("split.no", 2);
         h.short_number("split.count", 3);
     },
     "is file 3 of a model of 3 files: pass the path of the first file"},
    {"AnAdapter", [](Header & h) { h.text("general.type", "adapter"); },
     "is a LoRA adapter: pass the path of the model"},
    {"AnImportanceMatrix",
     [](Header & h) {
         h.remove("general.architecture");
         h.text("general.type", "imatrix");
     },
     "is an importance matrix"},
    {"AProjector", [](Header & h) { h.text("general.architecture", "clip"); }, "is a projector for images or sound"},
    {"AnImageModel",
     [](Header & h) {
         h.text("general.architecture", "flux");
         h.remove("tokenizer.ggml.model");
     },
     "is not a language model: it has no vocabulary (general.architecture is \"flux\")"},
};

class Refused : public GgufCheck, public testing::WithParamInterface<Case> {};

TEST_P(Refused, WithAReason) {
    const std::string text = refusal_of(GetParam().change);
    EXPECT_NE(text.find(GetParam().reason), std::string::npos) << '"' << text << '"';
}

INSTANTIATE_TEST_SUITE_P(GgufCheck, Refused, testing::ValuesIn(cases),
                         [](const auto & info) { return std::string(info.param.name); });

// Assertions of llama.cpp reject these files; AbortGuard turns the failures into errors.
const Case asserted[] = {
    {"TooManyExperts", [](Header & h) { h.number("llama.expert_count", 1025); }, "GGML_ASSERT(hparams.n_expert <="},
    {"MoreExpertsUsedThanThereAre", [](Header & h) { h.number("llama.expert_used_count", 3); }, "GGML_ASSERT("},
    {"NoExpertsUsed", [](Header & h) { h.number("llama.expert_count", 8); }, "GGML_ASSERT("},
    {"GroupsOfNoExperts", [](Header & h) { h.number("llama.expert_group_count", 2); }, "GGML_ASSERT("},
    {"UnknownRopeScaling", [](Header & h) { h.text("llama.rope.scaling.type", "cubic"); }, "GGML_ASSERT("},
    {"ATokenTwice", [](Header & h) { h.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "a"}); },
     "GGML_ASSERT("},
};

class Asserted : public GgufCheck, public testing::WithParamInterface<Case> {};

TEST_P(Asserted, IsAnError) {
    Header header;
    GetParam().change(header);
    try {
        Model::load(write(header.bytes() + std::string(16'384, '\0')), {});  // with the tensors' data
        FAIL() << "it was loaded";
    } catch (const Error & error) {
        EXPECT_EQ(error.status(), ELIZA_ERR_BUNDLE_INVALID);
        EXPECT_NE(std::string(error.what()).find(GetParam().reason), std::string::npos) << error.what();
    }
}

INSTANTIATE_TEST_SUITE_P(GgufCheck, Asserted, testing::ValuesIn(asserted),
                         [](const auto & info) { return std::string(info.param.name); });

TEST_F(GgufCheck, AcceptsATokenizerThatTerminates) {
    EXPECT_EQ(refusal_of([](Header & h) {
                  h.text("tokenizer.ggml.model", "rwkv");
                  h.texts("tokenizer.ggml.tokens", {"a", "ab", "\\x62", "\\n", "\\ncd", "b\\xff"});
              }),
              "");
}

TEST_F(GgufCheck, RejectsSpecialFilesWithoutWaiting) {
    SKIP_ON_WINDOWS("Windows has no FIFOs and no /dev/zero");
    const std::string fifo = (folder / "fifo").string();
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_EQ(refusal(fifo), "fifo: is not a regular file");
    fs::create_directory(folder / "folder");
    EXPECT_EQ(refusal((folder / "folder").string()), "folder: is not a regular file");
    EXPECT_THROW(check_model_file("/dev/zero"), Error);
    EXPECT_NE(refusal((folder / "nothing").string()).find("cannot be opened"), std::string::npos);
}

TEST_F(GgufCheck, RejectsEveryTruncatedHeader) {
    const std::string whole = Header().bytes();
    // Only the padding before the first tensor's data follows the last tensor's entry.
    for (size_t n = 0; n + 32 < whole.size(); ++n) {
        EXPECT_NE(refusal(write(whole.substr(0, n))), "") << n;
    }
    EXPECT_EQ(refusal(write("GGUF")), "model.gguf: ends inside the version");
    EXPECT_NE(refusal(write("MZ" + whole)).find("is not a GGUF file"), std::string::npos);
}

TEST_F(GgufCheck, RejectsImpossibleCounts) {
    const std::string whole = Header().bytes();
    const auto with_count = [&](size_t place, uint64_t count) {
        std::string bytes = whole;
        bytes.replace(place, sizeof(count), reinterpret_cast<const char *>(&count), sizeof(count));
        return refusal(write(bytes));
    };
    constexpr size_t n_tensors = 8, n_keys = 16, first_name = 24;
    for (const uint64_t count : {uint64_t{65'537}, uint64_t{1} << 31, ~uint64_t{0}}) {
        EXPECT_EQ(with_count(n_tensors, count),
                  "model.gguf: states " + std::to_string(count) + " tensors; the limit is 65536");
        EXPECT_EQ(with_count(n_keys, count),
                  "model.gguf: states " + std::to_string(count) + " keys; the limit is 65536");
    }
    EXPECT_NE(with_count(first_name, uint64_t{1} << 60).find("the header is larger than 512 MiB"), std::string::npos);
    EXPECT_EQ(with_count(first_name, uint64_t{1} << 28), "model.gguf: ends inside the name of key 0");
}

TEST_F(GgufCheck, ReadsNamesAsLlamaCppDoes) {
    // llama.cpp's lookup ends at a NUL and returns the first match.
    Header header;
    header.remove("llama.block_count");
    header.number("llama.block_count?", 0);
    header.number("llama.block_count", 2);
    std::string bytes = header.bytes();
    bytes[bytes.find('?')] = '\0';
    EXPECT_EQ(refusal(write(bytes)), "model.gguf: llama.block_count is 0; expected 1 to 512");
}

TEST_F(GgufCheck, RejectsAnAlignmentThatIsNoPowerOfTwo) {
    Header header;
    header.number("general.alignment", 64);
    std::string bytes = header.bytes();
    const std::string key = "general.alignment";
    bytes[bytes.find(key) + key.size() + sizeof(uint32_t)] = 48;  // after the key and the type
    EXPECT_EQ(refusal(write(bytes)), "model.gguf: general.alignment is 48, expected a power of 2");
}

TEST_F(GgufCheck, ChecksAllPartsOfAModel) {
    const auto part = [](uint16_t number) {
        Header header;
        header.short_number("split.count", 2);
        header.short_number("split.no", number);
        return header;
    };
    const std::string first = write(part(0).bytes(), "m-00001-of-00002.gguf");
    EXPECT_NE(refusal(first).find("m-00002-of-00002.gguf: cannot be opened"), std::string::npos);
    write(part(1).bytes(), "m-00002-of-00002.gguf");
    EXPECT_EQ(refusal(first), "");
    Header broken = part(1);
    broken.retype("output_norm.weight", GGML_TYPE_F16);
    write(broken.bytes(), "m-00002-of-00002.gguf");
    EXPECT_NE(refusal(first).find("m-00002-of-00002.gguf: the tensor output_norm.weight"), std::string::npos);
}

TEST_F(GgufCheck, ChecksAdapters) {
    const auto adapter = [](const std::function<void(Header &)> & change) {
        Header header;
        header.text("general.type", "adapter");
        header.text("adapter.type", "lora");
        header.real("adapter.lora.alpha", 8.0f);
        header.add("blk.0.attn_q.weight.lora_a", GGML_TYPE_F32, {64, 4});
        header.add("blk.0.attn_q.weight.lora_b", GGML_TYPE_F32, {4, 64});
        change(header);
        return header.bytes();
    };
    const auto refused = [&](const std::function<void(Header &)> & change) {
        return refusal(write(adapter(change)), check_adapter_file);
    };
    EXPECT_EQ(refused([](Header &) {}), "");
    EXPECT_NE(
        refused([](Header & h) { h.retype("blk.0.attn_q.weight.lora_a", GGML_TYPE_I32); }).find("has the type i32"),
        std::string::npos);
    EXPECT_EQ(refused([](Header & h) { h.add("blk.0.attn_k.weight.lora_a", GGML_TYPE_F32, {64, 4, 2}); }),
              "model.gguf: the tensor blk.0.attn_k.weight.lora_a has the shape [64, 4, 2]; expected a matrix with at "
              "least one row and column");
    EXPECT_NE(refused([](Header & h) { h.add("blk.0.attn_k.weight.lora_a", GGML_TYPE_F32, {0, 4}); }).find("[0, 4]"),
              std::string::npos);
}

TEST(AbortGuard, TurnsAFailedAssertionIntoAnError) {
    try {
        const AbortGuard guard;
        GGML_ASSERT(2 * 2 == 5);
        FAIL() << "it held";
    } catch (const std::runtime_error & error) {
        EXPECT_NE(std::string(error.what()).find("GGML_ASSERT(2 * 2 == 5) failed"), std::string::npos) << error.what();
    }
}

TEST(AbortGuard, ThrowsThroughGgmlsCCode) {
    const ggml_context_ptr memory(ggml_init({size_t{1} << 20, nullptr, true}));
    ggml_tensor * a = ggml_new_tensor_2d(memory.get(), GGML_TYPE_F32, 4, 4);
    ggml_tensor * b = ggml_new_tensor_2d(memory.get(), GGML_TYPE_F32, 5, 4);
    const AbortGuard guard;
    EXPECT_THROW(ggml_mul_mat(memory.get(), a, b), std::runtime_error);
    EXPECT_NE(ggml_mul_mat(memory.get(), a, a), nullptr);
}

TEST(AbortGuardDeathTest, OtherwiseAnAssertionEndsTheProcess) {
    { const AbortGuard guard; }
    EXPECT_DEATH(GGML_ABORT("no guard is active"), "no guard is active");
}

}  // namespace
}  // namespace eliza::test
