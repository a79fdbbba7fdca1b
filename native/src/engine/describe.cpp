// Facts about the library and the model as JSON, for users and support requests. Declared in
// engine/inference_context.h.

#include "engine/inference_context.h"
#include "ggml-backend.h"
#include "json.h"
#include "llama-model.h"
#include "log.h"
#include "platform/machine.h"
#include "platform/process.h"

namespace eliza {
namespace {

Json devices() {
    Json list = Json::array();
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        ggml_backend_dev_props props;
        ggml_backend_dev_get_props(device, &props);
        Json & facts = list.push_back(Json::object());
        facts.add("name", props.name);
        facts.add("description", props.description);
        facts.add("gpu", props.type != GGML_BACKEND_DEVICE_TYPE_CPU);
        facts.add("memory_bytes", props.memory_total);
    }
    return list;
}

// How the model's file says that the values of tokens become an embedding, or the score of a reranker.
const char * pooling_name(const Model & model) {
    switch (model.get()->hparams.pooling_type) {
        case LLAMA_POOLING_TYPE_MEAN: return "mean";
        case LLAMA_POOLING_TYPE_CLS: return "cls";
        case LLAMA_POOLING_TYPE_LAST: return "last";
        case LLAMA_POOLING_TYPE_RANK: return "rank";
        default: return "none";
    }
}

// Lists the devices in the order of the layers they compute. Consecutive layers on one device are one entry; the output
// head counts as the last layer.
Json placement(const llama_model * model) {
    struct Run {
        ggml_backend_dev_t device;
        int n_layers;
    };
    std::vector<Run> runs;
    const auto add = [&](ggml_backend_dev_t device) {
        if (runs.empty() || runs.back().device != device) {
            runs.push_back({device, 0});
        }
        ++runs.back().n_layers;
    };
    for (int32_t layer = 0; layer < llama_model_n_layer(model); ++layer) {
        add(model->dev_layer(layer));
    }
    add(model->dev_output());
    Json list = Json::array();
    for (const Run & run : runs) {
        Json & facts = list.push_back(Json::object());
        facts.add("device", ggml_backend_dev_name(run.device));
        facts.add("description", ggml_backend_dev_description(run.device));
        facts.add("layers", run.n_layers);
    }
    return list;
}

std::string model_description(const llama_model * model) {
    std::string text(128, '\0');
    const int32_t size = llama_model_desc(model, text.data(), text.size());
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text;
}

std::string model_metadata(const llama_model * model, const char * key) {
    std::string text(256, '\0');
    const int32_t size = llama_model_meta_val_str(model, key, text.data(), text.size());
    text.resize(size > 0 ? std::min(static_cast<size_t>(size), text.size() - 1) : 0);
    return text;
}

// Returns the text of a special token, or null if the vocabulary does not have it.
Json token_text(const llama_vocab * vocab, llama_token token) {
    return token == LLAMA_TOKEN_NULL ? Json() : Json(llama_vocab_get_text(vocab, token));
}

Json adapters(const Model & model) {
    Json list = Json::array();
    for (const LoraFile & file : model.lora()) {
        Json & facts = list.push_back(Json::object());
        facts.add("path", file.path);
        facts.add("scale", double{file.scale});
    }
    return list;
}

GlobalMutex & system_info_mutex = *new GlobalMutex;  // llama.cpp writes the text into a static string

std::string system_info() {
    const std::lock_guard<GlobalMutex> lock(system_info_mutex);
    return llama_print_system_info();
}

Json library_facts(int32_t n_threads) {
    init_backend();
    Json facts = Json::object();
    facts.add("abi_version", "12");
    facts.add("library_version", ELIZA_VERSION);
    Json & llama_cpp = facts.add("llama_cpp", Json::object());
    llama_cpp.add("version", llama_version());
    llama_cpp.add("commit", ELIZA_LLAMA_CPP_COMMIT);
    facts.add("backend", ELIZA_BACKEND);
    facts.add("system_info", system_info());
    facts.add("threads", n_threads);
    if (const double quota = cpu_quota(); quota > 0.0) {
        facts.add("cpu_quota", quota);
    }
    facts.add("gpu_offload", llama_supports_gpu_offload());
    facts.add("devices", devices());
    return facts;
}

}  // namespace

std::string describe_library() { return library_facts(usable_core_count()).dump(); }

InferenceContext::PassFacts InferenceContext::pass_facts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    PassFacts facts{options_.share_passes, options_.n_slots, options_.n_batch, options_.slot_wait_ms, 0, 0, 0, 0};
    for (const auto & [settings, known] : decoders_) {
        facts.n_passes += known.decoder->queue().scheduler().n_passes();
        facts.n_sequences += known.decoder->queue().scheduler().n_sequences();
        facts.n_parked += known.decoder->cache().n_parked();
        facts.n_ctx = known.decoder->n_ctx();
    }
    return facts;
}

std::string InferenceContext::describe() {
    const std::shared_ptr<Model> shared = model();
    const llama_model * model = shared->get();
    const llama_vocab * vocab = shared->vocab();
    const char * chat_template = llama_model_chat_template(model, nullptr);
    const int32_t n_threads = option_n_threads();
    Json facts = library_facts(n_threads > 0 ? std::min(n_threads, usable_cpu_count()) : usable_core_count());
    Json & of_model = facts.add("model", Json::object());
    of_model.add("path", model_path_);
    of_model.add("name", model_metadata(model, "general.name"));
    const std::string of_architecture = model_metadata(model, "general.architecture") + ".decision.type";
    of_model.add("decision_type", model_metadata(model, of_architecture.c_str()));
    of_model.add("prompt_format", model_metadata(model, "eliza.prompt_format"));
    of_model.add("prompt_order", model_metadata(model, "eliza.prompt_order"));
    of_model.add("description", model_description(model));
    of_model.add("n_params", llama_model_n_params(model));
    of_model.add("size_bytes", llama_model_size(model));
    of_model.add("n_vocab", shared->n_vocab());
    of_model.add("n_ctx_train", llama_model_n_ctx_train(model));
    of_model.add("n_embd", llama_model_n_embd(model));
    of_model.add("architecture", shared->architecture());
    of_model.add("pooling", pooling_name(*shared));
    of_model.add("n_layer", llama_model_n_layer(model));
    of_model.add("generates", shared->is_causal());
    of_model.add("mtp_head", shared->has_mtp_head());
    of_model.add("lora", adapters(*shared));
    of_model.add("placement", placement(model));
    of_model.add("has_chat_template", chat_template != nullptr);
    of_model.add("chat_template", chat_template != nullptr ? Json(chat_template) : Json());
    of_model.add("bos_token", token_text(vocab, llama_vocab_bos(vocab)));
    of_model.add("eos_token", token_text(vocab, llama_vocab_eos(vocab)));
    of_model.add("add_bos", llama_vocab_get_add_bos(vocab));
    const PassFacts passes = pass_facts();
    Json & of_passes = facts.add("passes", Json::object());
    of_passes.add("batching", passes.are_shared && shared->can_share_passes() ? "auto" : "off");
    of_passes.add("n_slots", passes.n_slots);
    const KvCache::Sequences sequences = Decoder::sequences_for(*shared, passes.n_slots);
    of_passes.add("n_texts", sequences.n_slots + sequences.n_kept);
    of_passes.add("n_batch", passes.n_batch);
    of_passes.add("n_ctx", passes.n_ctx);
    of_passes.add("slot_wait_ms", passes.slot_wait_ms);
    of_passes.add("run", passes.n_passes);
    of_passes.add("sequences", passes.n_sequences);
    of_passes.add("parked_tokens", passes.n_parked);
    return facts.dump();
}

}  // namespace eliza
