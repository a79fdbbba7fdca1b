#include "engine/model/model.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "engine/model/abort_guard.h"
#include "engine/model/gguf_check.h"
#include "error.h"
#include "llama-arch.h"
#include "llama-ext.h"
#include "llama-model.h"
#include "llama-vocab.h"
#include "log.h"
#include "platform/files.h"
#include "platform/process.h"
#include "token_piece.h"

namespace eliza {
namespace {

using Key = std::pair<std::string, ModelSettings>;

struct Loaded {
    std::weak_ptr<Model> model;
    std::vector<GgufFile> files;  // the files it was loaded from
};

// The loaded models of this process.
struct Registry {
    std::mutex mutex;  // held while loading, so that two concurrent requests for the same file do not load it twice
    std::map<Key, Loaded> models;
};

// A static object as described in platform/process.h. A forked child starts with an empty registry, because a thread of
// the parent may have held the mutex.
Registry * registry = [] {
    reset_after_fork([] { registry = new Registry; });
    return new Registry;
}();

const GgufFile * first_changed(const std::vector<GgufFile> & files) {
    const auto found =
        std::find_if(files.begin(), files.end(), [](const GgufFile & file) { return !file.is_unchanged(); });
    return found == files.end() ? nullptr : &*found;
}

// Returns the fingerprints of a model's files and of its adapters, with the scales of the adapters.
std::string fingerprint_of(const std::vector<GgufFile> & files, const std::vector<LoraFile> & adapters) {
    std::string fingerprint;
    const size_t n_own = files.size() - adapters.size();
    for (size_t i = 0; i < files.size(); ++i) {
        fingerprint += (i > 0 ? " " : "") + files[i].fingerprint();
        if (i >= n_own) {
            char scale[32];
            std::snprintf(scale, sizeof scale, " x %a", static_cast<double>(adapters[i - n_own].scale));  // exact
            fingerprint += scale;
        }
    }
    return fingerprint;
}

struct Load {
    const Progress & progress;
    const std::atomic<bool> * is_cancelled;
};

// Returns false to stop loading.
bool report_progress(float fraction, void * of_load) {
    const Load & load = *static_cast<const Load *>(of_load);
    if (load.progress) {
        load.progress("load", fraction);
    }
    return !WorkBeforeExit::must_stop() && !(load.is_cancelled != nullptr && *load.is_cancelled);
}

int32_t checked_size(size_t size, const char * what) {
    if (size > INT32_MAX) {
        throw invalid_argument(std::string(what) + ": expected at most " + std::to_string(INT32_MAX) + ", got " +
                               std::to_string(size));
    }
    return static_cast<int32_t>(size);
}

}  // namespace

Model::Model(llama_model * model, const ModelSettings & settings, std::string fingerprint)
    : model_(model), settings_(settings), fingerprint_(std::move(fingerprint)) {
    for (llama_token token = 0; token < n_vocab(); ++token) {
        if (llama_vocab_is_eog(vocab(), token)) {
            end_tokens_.push_back(token);
        }
    }
}

std::shared_ptr<Model> Model::load(const std::string & path, const ModelSettings & settings, const Progress & progress,
                                   const std::atomic<bool> * is_cancelled) {
    init_backend();
    const std::lock_guard<std::mutex> lock(registry->mutex);
    std::map<Key, Loaded> & models = registry->models;
    const Key key{path, settings};
    if (const auto known = models.find(key); known != models.end()) {
        if (auto model = known->second.model.lock();
            model != nullptr && first_changed(known->second.files) == nullptr) {
            return model;
        }
    }
    for (auto known = models.begin(); known != models.end();) {  // forget models that are no longer open
        known = known->second.model.expired() ? models.erase(known) : std::next(known);
    }

    std::vector<GgufFile> files = check_model_file(path);
    for (const LoraFile & adapter : settings.lora) {
        files.push_back(check_adapter_file(adapter.path));
    }
    std::string fingerprint = fingerprint_of(files, settings.lora);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = settings.n_gpu_layers;
    params.load_mode = settings.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    params.load_mtp = settings.with_mtp_head;
    std::vector<ggml_backend_dev_t> opened;
    if (!settings.devices.is_default()) {
        opened = open_devices(settings.devices);
        opened.push_back(nullptr);
        params.devices = opened.data();
    }
    params.progress_callback = report_progress;
    Load load{progress, is_cancelled};
    params.progress_callback_user_data = &load;
    const LlamaErrorCapture capture;
    llama_model * raw = [&] {
        const AbortGuard guard;
        const WorkBeforeExit work;
        return llama_model_load_from_file(path_of(path).u8string().c_str(), params);
    }();
    if (raw == nullptr) {
        if (is_cancelled != nullptr && *is_cancelled) {
            throw Error(ELIZA_ERR_CANCELLED, "loading the model " + path + " was cancelled");
        }
        check_rpc_connections(settings.devices.rpc);
        throw capture.error(ELIZA_ERR_BUNDLE_INVALID, "cannot load the model " + path);
    }
    std::shared_ptr<Model> model(new Model(raw, settings, std::move(fingerprint)));
    check_rpc_connections(settings.devices.rpc);
    if (llama_vocab_type(model->vocab()) == LLAMA_VOCAB_TYPE_NONE) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID, "the model " + path + " has no vocabulary");
    }
    model->load_adapters();
    if (const GgufFile * changed = first_changed(files)) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID, changed->path + " was changed while it was loaded: load the model again");
    }
    models[key] = {model, std::move(files)};
    return model;
}

void Model::load_adapters() {
    for (const LoraFile & file : settings_.lora) {
        const LlamaErrorCapture capture;
        const AbortGuard guard;
        llama_adapter_lora * adapter = llama_adapter_lora_init(get(), path_of(file.path).u8string().c_str());
        if (adapter == nullptr) {
            throw capture.error(ELIZA_ERR_BUNDLE_INVALID, "cannot load the LoRA adapter " + file.path);
        }
        if (llama_adapter_get_alora_n_invocation_tokens(adapter) > 0) {
            throw invalid_argument("the LoRA adapter " + file.path +
                                   " is activated by certain tokens (aLoRA), which is not supported");
        }
        adapters_.push_back(adapter);
    }
}

llama_context_ptr Model::new_context(llama_context_params params, const std::string & purpose) const {
    if (!takes_flash_attention()) {
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    const LlamaErrorCapture capture;
    const AbortGuard guard;
    llama_context_ptr context(llama_init_from_model(get(), params));
    if (context == nullptr) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "cannot create a context " + purpose);
    }
    if (!adapters_.empty()) {
        std::vector<llama_adapter_lora *> adapters = adapters_;
        std::vector<float> scales;
        for (const LoraFile & file : settings_.lora) {
            scales.push_back(file.scale);
        }
        if (llama_set_adapters_lora(context.get(), adapters.data(), adapters.size(), scales.data()) != 0) {
            throw capture.error(ELIZA_ERR_FFI_FAULT, "cannot apply the LoRA adapters");
        }
    }
    return context;
}

bool Model::is_offloaded() const { return n_gpu_layers() != 0 && llama_model_n_devices(get()) > 0; }

bool Model::is_recurrent() const { return llama_model_is_recurrent(get()) || llama_model_is_hybrid(get()); }

bool Model::takes_flash_attention() const {
    const llama_hparams & hparams = get()->hparams;
    if (is_one_of({"plm"})) return false;
    if (!is_offloaded() || !hparams.attn_soft_cap) return true;
    for (uint32_t layer = 0; layer < hparams.n_layer(); ++layer) {
        const uint32_t width = hparams.n_embd_head_k(layer);
        if (width != 128 && width != 256 && width != 512) return false;
    }
    return true;
}

bool Model::is_causal() const {
    return get()->hparams.causal_attn && !llama_model_has_encoder(get()) && has_output_head();
}

bool Model::can_keep_snapshots() const { return is_recurrent() && llm_arch_supports_rs_rollback(get()->arch); }

std::string Model::architecture() const { return get()->arch_name(); }

bool Model::is_one_of(std::initializer_list<std::string_view> architectures) const {
    return std::find(architectures.begin(), architectures.end(), architecture()) != architectures.end();
}

// llama.cpp ends the process in three cases: it has no graph for the head's architecture, the head lacks a tensor, or
// the model has several heads and the graph supports only one.
bool Model::has_mtp_head() const {
    struct Architecture {
        std::string_view name;
        bool has_experts, has_several;
    };
    static constexpr Architecture known[] = {
        {"qwen35", false, false}, {"qwen35moe", true, false}, {"glm4moe", true, false}, {"step35", false, true}};
    const std::string name = architecture();
    const auto * found = std::find_if(std::begin(known), std::end(known),
                                      [&](const Architecture & architecture) { return architecture.name == name; });
    const int32_t n_heads = llama_model_n_layer_nextn(get());
    if (!settings_.with_mtp_head || found == std::end(known) || n_heads == 0 || (n_heads > 1 && !found->has_several)) {
        return false;
    }
    const auto & layers = get()->layers;
    return std::all_of(layers.end() - n_heads, layers.end(), [&](const llama_layer & layer) {
        return layer.nextn.eh_proj != nullptr && layer.nextn.enorm != nullptr && layer.nextn.hnorm != nullptr &&
               (layer.ffn_gate_inp != nullptr || !found->has_experts);
    });
}

uint64_t Model::n_products(size_t n_tokens, size_t n_rows) const {
    const auto size = [](const ggml_tensor * tensor) {
        return tensor == nullptr ? uint64_t{0} : static_cast<uint64_t>(ggml_nelements(tensor));
    };
    const ggml_tensor *embeddings = get()->tok_embd, *output = get()->output;
    const bool is_shared = embeddings != nullptr && output != nullptr &&
                           std::string_view(ggml_get_name(embeddings)) == ggml_get_name(output);
    const uint64_t outside = size(embeddings) + (is_shared ? 0 : size(output));
    const uint64_t n_params = llama_model_n_params(get());
    // For one row of logits, llama.cpp's threads take turns with 64 rows of the matrix. If these are less than 32 KiB,
    // two threads read them from memory more slowly than one thread, which reads the whole matrix in order.
    const bool is_read_in_order = n_rows == 1 && output != nullptr && 64 * output->nb[1] < 32768;
    return (n_params - std::min(n_params, outside)) * n_tokens + (is_read_in_order ? 0 : size(output) * n_rows);
}

bool Model::has_trunk() const {
    // the same condition as in llama.cpp
    return llama_model_n_layer_nextn(get()) == 0 || get()->get_tensor("blk.0.attn_norm.weight") != nullptr;
}

// llama.cpp's assistants read the cells of the model's last layer. Their layers with a sliding window read the cells of
// the last layer but one.
void Model::require_fit(const Model & assistant) const {
    const llama_hparams &own = get()->hparams, &others = assistant.get()->hparams;
    const auto n_layers = static_cast<uint32_t>(llama_model_n_layer(get()));
    const auto require = [](bool fits, const std::string & problem) {
        if (!fits) {
            throw invalid_argument("the assistant was made for another model: " + problem);
        }
    };
    require(assistant.architecture() == architecture() + "-assistant",
            "its architecture is " + assistant.architecture() + ", the model's is " + architecture());
    require(n_layers >= 2 && own.is_swa(n_layers - 2) && !own.is_swa(n_layers - 1),
            "only the last but one of the model's last two layers must have a sliding window");
    for (uint32_t layer = 0; layer < others.n_layer_all; ++layer) {
        const uint32_t read = n_layers - (others.is_swa(layer) ? 2 : 1);
        const auto sizes_of = [](const llama_hparams & sizes, uint32_t of) {
            return std::to_string(sizes.n_head_kv(of)) + " heads of " + std::to_string(sizes.n_embd_head_k(of)) +
                   " and " + std::to_string(sizes.n_embd_head_v(of)) + " values";
        };
        const std::string has = sizes_of(own, read), needs = sizes_of(others, layer);
        require(has == needs, "the model's layer " + std::to_string(read) + " has keys and values with " + has +
                                  ", the assistant expects " + needs);
    }
}

// Some files ask for an end token after every text. It is right for embeddings, but a prompt is to be continued.
std::vector<llama_token> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
    std::vector<llama_token> tokens = tokenize_whole(text, add_special, parse_special);
    const bool has_end =
        add_special && llama_vocab_get_add_eos(vocab()) && !tokens.empty() && tokens.back() == llama_vocab_eos(vocab());
    if (has_end) {
        tokens.pop_back();
    }
    return tokens;
}

std::vector<llama_token> Model::tokenize_whole(std::string_view text, bool add_special, bool parse_special) const {
    const int32_t length = checked_size(text.size(), "the text's length in bytes");
    // Every token has at least one byte, except for special tokens added at the ends.
    std::vector<llama_token> tokens(text.size() + 2);
    const auto run = [&] {
        try {
            const int32_t room = checked_size(tokens.size(), "the number of tokens");
            return llama_tokenize(vocab(), text.data(), length, tokens.data(), room, add_special, parse_special);
        } catch (const Error &) {
            throw;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & error) {  // for example invalid UTF-8
            throw invalid_argument(std::string("the text cannot be tokenized: ") + error.what());
        }
    };
    int32_t n = run();
    if (n < 0 && n != INT32_MIN) {
        tokens.resize(static_cast<size_t>(-n));
        n = run();
    }
    if (n < 0) {
        throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp could not tokenize a text of " + std::to_string(length) + " bytes");
    }
    tokens.resize(static_cast<size_t>(n));
    return tokens;
}

// As llama_detokenize(), except for one step: for many vocabularies, that function then removes spaces before
// punctuation
// ("clean up tokenization spaces"), so that the text is not the text of the tokens.
std::string Model::detokenize(const llama_token * tokens, size_t n, bool remove_special, bool unparse_special) const {
    check_tokens(tokens, n);
    const llama_token * end = tokens + n;
    bool has_space_prefix = vocab()->get_add_space_prefix();
    if (remove_special && n > 0 && llama_vocab_get_add_bos(vocab()) && *tokens == llama_vocab_bos(vocab())) {
        ++tokens;
        has_space_prefix = false;
    }
    if (remove_special && tokens < end && llama_vocab_get_add_eos(vocab()) && *(end - 1) == llama_vocab_eos(vocab())) {
        --end;
    }
    std::string text;
    for (; tokens < end; ++tokens) {
        text += token_piece(vocab(), *tokens, unparse_special, has_space_prefix ? 1 : 0);
        has_space_prefix = false;
    }
    return text;
}

std::string Model::piece(llama_token token) const { return token_piece(vocab(), token, /*special=*/false); }

std::optional<std::vector<llama_token>> Model::tokens_inside(std::string_view text) const {
    // SentencePiece adds a space at the beginning. In that case the text is tokenized after a line break,
    // whose tokens are then removed.
    constexpr std::string_view anchor = "\n";
    const auto spells_text = [&](const std::vector<llama_token> & tokens) {
        std::string spelled;
        for (const llama_token token : tokens) {
            spelled += piece(token);
        }
        return spelled == text;
    };
    try {
        std::vector<llama_token> tokens = tokenize(text, false, false);
        if (spells_text(tokens)) {
            return tokens;
        }
        const std::vector<llama_token> before = tokenize(anchor, false, false);
        tokens = tokenize(std::string(anchor).append(text), false, false);
        if (tokens.size() > before.size() && std::equal(before.begin(), before.end(), tokens.begin())) {
            tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(before.size()));
            if (spells_text(tokens)) {
                return tokens;
            }
        }
    } catch (const Error &) {
        // The bytes are not valid text, for example half a character.
    }
    return std::nullopt;
}

std::vector<llama_token> Model::tokenize_inside(std::string_view text) const {
    if (text.empty()) {
        return {};
    }
    std::optional<std::vector<llama_token>> tokens = tokens_inside(text);
    return tokens ? *std::move(tokens) : spell(text);
}

std::vector<llama_token> Model::spell(std::string_view text) const {
    const ByteTrie & trie = vocabulary()->all();
    std::vector<llama_token> tokens;
    for (size_t done = 0; done < text.size();) {
        uint32_t node = 0;
        llama_token longest = LLAMA_TOKEN_NULL;
        for (size_t i = done; i < text.size(); ++i) {
            node = trie.child(node, static_cast<uint8_t>(text[i]));
            if (node == 0) {
                break;
            }
            if (const uint32_t token = trie.nodes()[node].token(); token != trie.n_vocab()) {
                longest = static_cast<llama_token>(token);
            }
        }
        if (longest == LLAMA_TOKEN_NULL) {
            throw invalid_argument("the vocabulary has no token for byte " + std::to_string(done) + " of \"" +
                                   std::string(text) + "\"");
        }
        tokens.push_back(longest);
        done += trie.text(longest).size();
    }
    return tokens;
}

const Model::Texts & Model::texts() const {
    const std::lock_guard<std::mutex> lock(texts_mutex_);
    if (texts_ == nullptr) {
        std::vector<std::string> pieces(static_cast<size_t>(n_vocab()));
        for (llama_token token = 0; token < n_vocab(); ++token) {
            pieces[static_cast<size_t>(token)] = piece(token);
        }
        for (const llama_token token : end_tokens_) {
            pieces[static_cast<size_t>(token)].clear();
        }
        Texts texts;
        texts.vocabulary =
            std::make_shared<const Vocabulary>(ByteTrie(std::vector<std::string_view>(pieces.begin(), pieces.end())));
        texts.constraints = std::make_unique<TextConstraints>(texts.vocabulary);
        texts_ = std::make_unique<const Texts>(std::move(texts));
    }
    return *texts_;
}

std::shared_ptr<const Vocabulary> Model::vocabulary() const { return texts().vocabulary; }

std::shared_ptr<const GrammarVocabulary> Model::for_grammars(std::shared_ptr<const GrammarVocabulary> & known,
                                                             bool with_controls) const {
    const std::shared_ptr<const Vocabulary> texts = vocabulary();
    const std::lock_guard<std::mutex> lock(texts_mutex_);
    if (known == nullptr) {
        known = std::make_shared<const GrammarVocabulary>(vocab(), texts, end_tokens_, with_controls);
    }
    return known;
}

std::shared_ptr<const GrammarVocabulary> Model::grammar_values() const {
    return for_grammars(grammar_values_, /*with_controls=*/false);
}
std::shared_ptr<const GrammarVocabulary> Model::grammar_texts() const {
    return for_grammars(grammar_texts_, /*with_controls=*/true);
}

TextConstraints & Model::text_constraints() const { return *texts().constraints; }

void Model::check_tokens(const llama_token * tokens, size_t n) const {
    checked_size(n, "the number of tokens");  // before reading them
    const int32_t size = n_vocab();
    for (size_t i = 0; i < n; ++i) {
        if (tokens[i] < 0 || tokens[i] >= size) {
            throw invalid_argument("tokens[" + std::to_string(i) + "]: " + std::to_string(tokens[i]) +
                                   " is outside the vocabulary of " + std::to_string(size));
        }
    }
}

}  // namespace eliza
