// A loaded model: its weights, which are shared by all users of the same file, and its vocabulary.
#pragma once

#include <algorithm>
#include <atomic>
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
#include "lru_cache.h"
#include "token_trie/trie_cache.h"

namespace eliza {

// `stage` is "load" or "prefill"; `fraction` runs from 0 to 1.
using Progress = std::function<void(const char * stage, float fraction)>;

// Returns the model file of an elizaOS bundle directory, or the .gguf file itself. Throws an Error
// (ELIZA_ERR_BUNDLE_INVALID) that says what was expected.
std::string find_model_file(const std::string & bundle);

struct ModelSettings {
    int32_t n_gpu_layers = 0;  // -1: all
    bool use_mmap = true;
    DeviceChoice devices{};
    bool with_mtp_head = false;  // load the head, if the file has one
    std::vector<LoraFile> lora{};

    friend bool operator<(const ModelSettings & a, const ModelSettings & b) {
        return std::tie(a.n_gpu_layers, a.use_mmap, a.devices, a.with_mtp_head, a.lora) <
               std::tie(b.n_gpu_layers, b.use_mmap, b.devices, b.with_mtp_head, b.lora);
    }
};

class Model {
public:
    // Loads the file, or shares the model if it was already loaded with the same settings and the file has not changed.
    // If another thread sets `is_cancelled`, the load ends with an Error.
    static std::shared_ptr<Model> load(const std::string & path, const ModelSettings & settings,
                                       const Progress & progress = {},
                                       const std::atomic<bool> * is_cancelled = nullptr);

    llama_model * get() const { return model_.get(); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(model_.get()); }
    int32_t n_vocab() const { return llama_vocab_n_tokens(vocab()); }
    int32_t n_gpu_layers() const { return settings_.n_gpu_layers; }
    bool is_offloaded() const;  // completely or partly on a device other than the CPU
    const Endpoints & rpc_servers() const { return settings_.devices.rpc; }

    // Estimates the multiplications of a pass over n_tokens tokens that computes n_rows rows of logits, as far as more
    // threads make them faster. The token embeddings are only read. All experts count, although a token uses a few.
    uint64_t n_products(size_t n_tokens, size_t n_rows) const;

    // True if some layers keep one state for the whole sequence, instead of cells that can be removed one by one.
    bool is_recurrent() const;

    // True if llama.cpp can keep snapshots of that state.
    bool can_keep_snapshots() const;

    // Creates a context with the adapters applied, and without flash attention if the model does not take it. `purpose`
    // completes the message "cannot create a context ..." on failure.
    llama_context_ptr new_context(llama_context_params params, const std::string & purpose) const;

    const std::vector<LoraFile> & lora() const { return settings_.lora; }

    // Distinguishes these weights and adapters from others. State computed with other weights cannot be used here.
    const std::string & fingerprint() const { return fingerprint_; }

    std::string architecture() const;  // as llama.cpp names it, such as "llama"

    // ---- Limitations of some of llama.cpp's graphs, found by scripts/check_architectures.py ----

    // True if passes always compute the logits of all tokens. In that case all must be requested; otherwise llama.cpp
    // returns wrong rows (cogvlm), or ends the process if none is requested (chameleon).
    bool computes_all_rows() const { return is_one_of({"cogvlm", "chameleon"}); }

    // False if a pass with several sequences mixes up their states.
    bool can_share_passes() const { return !is_one_of({"plamo2"}); }

    // False if llama.cpp's flash attention would end the process: it requires values that are divided into heads. On
    // CUDA, its kernel for models that limit their attention logits takes only heads of 128, 256 and 512.
    bool takes_flash_attention() const;

    // False if a pass ends in embeddings instead of logits.
    bool has_output_head() const { return !is_one_of({"llama-embed"}); }

    // True if no token attends to later tokens.
    bool is_causal() const;

    // False if llama.cpp would end the process, because it copies wider rows than the pass computes, or because a
    // decoder finds no encoder's output.
    bool can_embed() const {
        const bool has_both = llama_model_has_encoder(get()) && llama_model_has_decoder(get());
        return !has_both && !is_one_of({"deepseek4", "qwen4exp"});
    }

    // True if a pass ends in scores of the options of questions, whose tokens the caller marks.
    bool reads_roles() const { return is_one_of({"clef"}); }

    // Image tokens, which must not be generated in text. llama.cpp excludes them only in the first row of a pass.
    struct TokenRange {
        llama_token first, end;
    };
    TokenRange image_tokens() const {
        return is_one_of({"chameleon"}) ? TokenRange{4, std::clamp(n_vocab(), 4, 8196)} : TokenRange{0, 0};
    }

    // True if a multi-token prediction head was loaded and this llama.cpp can run it.
    bool has_mtp_head() const;

    // False if the file contains only such a head and no model.
    bool has_trunk() const;

    // True if the file contains an assistant: layers that draft for another model and read that model's KV cache.
    bool is_assistant() const { return is_one_of({"gemma4-assistant"}); }

    // Throws an Error if this assistant cannot read the KV cache of this model.
    void require_fit(const Model & assistant) const;

    // Tokenizes a text that is to be continued. With add_special, adds the tokens that belong before a text.
    std::vector<llama_token> tokenize(std::string_view text, bool add_special, bool parse_special) const;

    // Tokenizes a whole text. With add_special, adds the tokens that belong before and after it.
    std::vector<llama_token> tokenize_whole(std::string_view text, bool add_special, bool parse_special) const;

    std::string detokenize(const llama_token * tokens, size_t n, bool remove_special, bool unparse_special) const;

    // Returns the tokens of a text as it would be tokenized in the middle of another one, or nothing if no tokens spell
    // it exactly.
    std::optional<std::vector<llama_token>> tokens_inside(std::string_view text) const;

    // The same, but bytes that the tokenizer cannot handle are spelled with the longest matching tokens. Throws an
    // Error if there are none.
    std::vector<llama_token> tokenize_inside(std::string_view text) const;

    // Returns the bytes of one token, "" for control tokens.
    std::string piece(llama_token token) const;

    // The tokens that end a generation, in ascending order.
    const std::vector<llama_token> & end_tokens() const { return end_tokens_; }

    // The text of each token, except control and end tokens; built on first use.
    std::shared_ptr<const Vocabulary> vocabulary() const;

    // The vocabulary for grammars, built on first use. A grammar for a value (grammar_values) cannot match control
    // tokens. A grammar for a whole generation (grammar_texts) can.
    std::shared_ptr<const GrammarVocabulary> grammar_values() const;
    std::shared_ptr<const GrammarVocabulary> grammar_texts() const;

    // The constraints shared by the spans of this vocabulary.
    TextConstraints & text_constraints() const;

    // The tries of labels in answers, by their text and the fixed text around them (see Answer::trie_of_labels).
    LruCache<std::string, CachedTrie> & label_tries() const { return label_tries_; }

    // Throws an Error that names the first token outside the vocabulary.
    void check_tokens(const llama_token * tokens, size_t n) const;

private:
    Model(llama_model * model, const ModelSettings & settings, std::string fingerprint);

    bool is_one_of(std::initializer_list<std::string_view> architectures) const;
    void load_adapters();
    std::vector<llama_token> spell(std::string_view text) const;

    llama_model_ptr model_;
    const ModelSettings settings_;
    const std::string fingerprint_;
    std::vector<llama_adapter_lora *> adapters_;  // owned by the model
    std::vector<llama_token> end_tokens_;

    // Built together on first use.
    struct Texts {
        std::shared_ptr<const Vocabulary> vocabulary;
        std::unique_ptr<TextConstraints> constraints;
    };
    const Texts & texts() const;
    std::shared_ptr<const GrammarVocabulary> for_grammars(std::shared_ptr<const GrammarVocabulary> & known,
                                                          bool with_controls) const;

    mutable std::mutex texts_mutex_;
    mutable std::unique_ptr<const Texts> texts_;
    mutable std::shared_ptr<const GrammarVocabulary> grammar_values_, grammar_texts_;  // built on first use
    mutable LruCache<std::string, CachedTrie> label_tries_{256, size_t(64) << 20};
};

}  // namespace eliza
