// A loaded model: its weights, shared by all that use the same file, and its vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "byte_trie/masks.h"
#include "constraint/text_constraints.h"
#include "engine/model/devices.h"
#include "engine/model/lora.h"
#include "grammar/grammar_vocabulary.h"
#include "llama-cpp.h"

namespace eliza {

// stage is "load" or "prefill", fraction 0 to 1.
using Progress = std::function<void(const char * stage, float fraction)>;

// The model file of an elizaOS bundle directory, or the .gguf file itself. Throws Error
// (ELIZA_ERR_BUNDLE_INVALID) that says what was looked for where.
std::string find_model_file(const std::string & bundle);

struct ModelSettings {
    int32_t n_gpu_layers = 0;  // -1: all
    bool use_mmap = true;
    DeviceChoice devices{};
    bool with_mtp_head = false;  // where the file has one
    std::vector<LoraFile> lora{};

    friend bool operator<(const ModelSettings & a, const ModelSettings & b) {
        return std::tie(a.n_gpu_layers, a.use_mmap, a.devices, a.with_mtp_head, a.lora) <
               std::tie(b.n_gpu_layers, b.use_mmap, b.devices, b.with_mtp_head, b.lora);
    }
};

class Model {
public:
    // Loads the file, or shares it if it is loaded already with the same settings and was not changed since.
    static std::shared_ptr<Model> load(const std::string & path, const ModelSettings & settings,
                                       const Progress & progress = {});

    llama_model * get() const { return model_.get(); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(model_.get()); }
    int32_t n_vocab() const { return llama_vocab_n_tokens(vocab()); }
    int32_t n_gpu_layers() const { return settings_.n_gpu_layers; }
    bool is_offloaded() const;  // to a device other than the CPU, if only in part
    const Endpoints & rpc_servers() const { return settings_.devices.rpc; }

    // True where a state stands for all that was decoded, in some layers at least, and not cells that can
    // be dropped one by one.
    bool is_recurrent() const;

    // True where llama.cpp can keep snapshots of that state.
    bool can_keep_snapshots() const;

    // A context in which the adapters act. `purpose` completes the Error "cannot create a context ..." of a failure.
    llama_context_ptr new_context(const llama_context_params & params, const std::string & purpose) const;

    const std::vector<LoraFile> & lora() const { return settings_.lora; }

    // Tells these weights, with their adapters, from others: what was computed with other weights is of no use here.
    const std::string & fingerprint() const { return fingerprint_; }

    std::string architecture() const;  // as llama.cpp names it, such as "llama"

    // ---- What some of llama.cpp's graphs cannot do, found by scripts/check_architectures.py ----

    // True where passes compute the logits of all tokens, whichever are asked for: then all must be, or llama.cpp
    // gives out the wrong rows (cogvlm), or ends the process where none is (chameleon).
    bool computes_all_rows() const { return is_one_of({"cogvlm", "chameleon"}); }

    // False where a pass of several sequences mixes up their states.
    bool can_share_passes() const { return !is_one_of({"plamo2"}); }

    // False where values come without heads, which flash attention asks for.
    bool takes_flash_attention() const { return !is_one_of({"plm"}); }

    // False where a pass ends in embeddings.
    bool has_output_head() const { return !is_one_of({"llama-embed"}); }

    // True if a token is read with those before it alone.
    bool is_causal() const;

    // False where the rows of a pass have another width than llama.cpp copies: it ends the process then.
    bool can_embed() const { return !is_one_of({"deepseek4", "qwen4exp"}); }

    // Tokens of images, which a text must not hold. llama.cpp rules them out in the first row of a pass alone.
    struct TokenRange {
        llama_token first, end;
    };
    TokenRange image_tokens() const {
        return is_one_of({"chameleon"}) ? TokenRange{4, std::clamp(n_vocab(), 4, 8196)} : TokenRange{0, 0};
    }

    // True where a head that predicts further tokens was loaded, and this llama.cpp can run it.
    bool has_mtp_head() const;

    // False where the file holds such a head and no model.
    bool has_trunk() const;

    std::vector<llama_token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
    std::string detokenize(const llama_token * tokens, size_t n, bool remove_special, bool unparse_special) const;

    // The tokens of a text as it stands in the middle of another, where the tokenizer has any that spell it exactly.
    std::optional<std::vector<llama_token>> tokens_inside(std::string_view text) const;

    // The same; bytes that no tokenizer takes are spelled by the longest tokens there are. Throws Error if there are
    // none.
    std::vector<llama_token> tokenize_inside(std::string_view text) const;

    // The bytes of one token, "" for control tokens.
    std::string piece(llama_token token) const;

    // The tokens that end a generation, ascending.
    const std::vector<llama_token> & end_tokens() const { return end_tokens_; }

    // The texts of all tokens but control and end tokens; built when first asked for.
    std::shared_ptr<const Vocabulary> vocabulary() const;

    // The same for the grammars of values, and for those of whole generations, which describe control tokens, too.
    std::shared_ptr<const GrammarVocabulary> grammar_values() const;
    std::shared_ptr<const GrammarVocabulary> grammar_texts() const;

    // What spans of this vocabulary share.
    TextConstraints & text_constraints() const;

    // Throws Error that names the first token that is outside the vocabulary.
    void check_tokens(const llama_token * tokens, size_t n) const;

private:
    Model(llama_model * model, const ModelSettings & settings, std::string fingerprint);

    bool is_one_of(std::initializer_list<std::string_view> architectures) const;
    void load_adapters();
    std::vector<llama_token> spell(std::string_view text) const;

    llama_model_ptr model_;
    const ModelSettings settings_;
    const std::string fingerprint_;
    std::vector<llama_adapter_lora *> adapters_;  // the model's
    std::vector<llama_token> end_tokens_;

    // Built when first asked for, all at once.
    struct Texts {
        std::shared_ptr<const Vocabulary> vocabulary;
        std::unique_ptr<TextConstraints> constraints;
    };
    const Texts & texts() const;
    std::shared_ptr<const GrammarVocabulary> for_grammars(std::shared_ptr<const GrammarVocabulary> & known,
                                                          bool with_controls) const;

    mutable std::mutex texts_mutex_;
    mutable std::unique_ptr<const Texts> texts_;
    mutable std::shared_ptr<const GrammarVocabulary> grammar_values_, grammar_texts_;  // where a grammar asks for one
};

}  // namespace eliza
