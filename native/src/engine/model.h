// A loaded model: its weights, shared by all that use the same file, and its vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "byte_trie/masks.h"
#include "engine/devices.h"
#include "engine/text_constraints.h"
#include "llama-cpp.h"

namespace eliza {

// stage is "load" or "prefill", fraction 0 to 1.
using Progress = std::function<void(const char * stage, float fraction)>;

// The model file of an elizaOS bundle directory, or the .gguf file itself. Throws Error
// (ELIZA_ERR_BUNDLE_INVALID) that says what was looked for where.
std::string find_model_file(const std::string & bundle);

class Model {
public:
    // Loads the file, or shares it if it is loaded already with the same settings.
    static std::shared_ptr<Model> load(const std::string & path, int32_t n_gpu_layers, bool use_mmap,
                                       const Progress & progress, const DeviceChoice & devices = {});

    llama_model * get() const { return model_.get(); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(model_.get()); }
    int32_t n_vocab() const { return llama_vocab_n_tokens(vocab()); }
    int32_t n_gpu_layers() const { return n_gpu_layers_; }
    bool is_offloaded() const;  // to a device other than the CPU, if only in part
    const Endpoints & rpc_servers() const { return rpc_servers_; }

    std::vector<llama_token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
    std::string detokenize(const llama_token * tokens, size_t n, bool remove_special, bool unparse_special) const;

    // The tokens of a text as it stands in the middle of another. Bytes that no tokenizer takes are
    // spelled by the longest tokens there are. Throws Error if there are none.
    std::vector<llama_token> tokenize_inside(std::string_view text) const;

    // The bytes of one token, "" for control tokens.
    std::string piece(llama_token token) const;

    // The tokens that end a generation, ascending.
    const std::vector<llama_token> & end_tokens() const { return end_tokens_; }

    // The texts of all tokens but control and end tokens; built when first asked for.
    std::shared_ptr<const Vocabulary> vocabulary() const;

    // What spans of this vocabulary share.
    TextConstraints & text_constraints() const;

    // Throws Error that names the first token that is outside the vocabulary.
    void check_tokens(const llama_token * tokens, size_t n) const;

private:
    Model(llama_model * model, int32_t n_gpu_layers, const Endpoints & rpc_servers);

    std::vector<llama_token> spell(std::string_view text) const;

    llama_model_ptr model_;
    int32_t n_gpu_layers_;
    Endpoints rpc_servers_;
    std::vector<llama_token> end_tokens_;
    mutable std::once_flag vocabulary_built_;
    mutable std::shared_ptr<const Vocabulary> vocabulary_;
    mutable std::unique_ptr<TextConstraints> text_constraints_;
};

}  // namespace eliza
