// Facts for people and support requests, as JSON. Declared in engine/inference_context.h.

#include <nlohmann/json.hpp>

#include "engine/inference_context.h"
#include "engine/pass/threads.h"
#include "ggml-backend.h"
#include "llama-model.h"
#include "log.h"

namespace eliza {
namespace {

using Json = nlohmann::ordered_json;

Json devices() {
    Json list = Json::array();
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        ggml_backend_dev_props props;
        ggml_backend_dev_get_props(device, &props);
        list.push_back({{"name", props.name},
                        {"description", props.description},
                        {"gpu", props.type != GGML_BACKEND_DEVICE_TYPE_CPU},
                        {"memory_bytes", props.memory_total}});
    }
    return list;
}

// Where the layers are computed, in their order, runs of one device together; the output head is the
// last of them.
Json placement(const llama_model * model) {
    Json runs = Json::array();
    const auto add = [&](ggml_backend_dev_t device) {
        const char * name = ggml_backend_dev_name(device);
        if (runs.empty() || runs.back()["device"] != name) {
            runs.push_back({{"device", name}, {"description", ggml_backend_dev_description(device)}, {"layers", 0}});
        }
        runs.back()["layers"] = runs.back()["layers"].get<int>() + 1;
    };
    for (int32_t layer = 0; layer < llama_model_n_layer(model); ++layer) {
        add(model->dev_layer(layer));
    }
    add(model->dev_output());
    return runs;
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

// The text of a special token, or null where the vocabulary has none.
Json token_text(const llama_vocab * vocab, llama_token token) {
    return token == LLAMA_TOKEN_NULL ? Json() : Json(llama_vocab_get_text(vocab, token));
}

Json adapters(const Model & model) {
    Json list = Json::array();
    for (const LoraFile & file : model.lora()) {
        list.push_back({{"path", file.path}, {"scale", file.scale}});
    }
    return list;
}

Json library_facts() {
    init_backend();
    return {{"abi_version", "12"},
            {"library_version", ELIZA_VERSION},
            {"llama_cpp", {{"version", llama_version()}, {"commit", ELIZA_LLAMA_CPP_COMMIT}}},
            {"backend", ELIZA_BACKEND},
            {"system_info", llama_print_system_info()},
            {"threads", default_thread_count()},
            {"gpu_offload", llama_supports_gpu_offload()},
            {"devices", devices()}};
}

// Text from a model file need not be valid UTF-8, which JSON is.
std::string dump(const Json & json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string describe_library() { return dump(library_facts()); }

InferenceContext::PassFacts InferenceContext::pass_facts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    PassFacts facts{options_.share_passes, options_.n_slots, options_.n_batch, options_.slot_wait.count(), 0, 0, 0};
    for (const auto & [settings, known] : decoders_) {
        facts.n_passes += known.decoder->queue().pass().n_passes();
        facts.n_sequences += known.decoder->queue().pass().n_sequences();
        facts.n_parked += known.decoder->cache().n_parked();
    }
    return facts;
}

std::string InferenceContext::describe() {
    const std::shared_ptr<Model> shared = model();
    const llama_model * model = shared->get();
    const llama_vocab * vocab = shared->vocab();
    const char * chat_template = llama_model_chat_template(model, nullptr);
    Json facts = library_facts();
    if (const int32_t n_threads = option_n_threads(); n_threads > 0) {
        facts["threads"] = std::min(n_threads, usable_cpu_count());
    }
    facts["model"] = {{"path", model_path_},
                      {"name", model_metadata(model, "general.name")},
                      {"description", model_description(model)},
                      {"n_params", llama_model_n_params(model)},
                      {"size_bytes", llama_model_size(model)},
                      {"n_vocab", shared->n_vocab()},
                      {"n_ctx_train", llama_model_n_ctx_train(model)},
                      {"n_embd", llama_model_n_embd(model)},
                      {"n_layer", llama_model_n_layer(model)},
                      {"mtp_head", shared->has_mtp_head()},
                      {"lora", adapters(*shared)},
                      {"placement", placement(model)},
                      {"has_chat_template", chat_template != nullptr},
                      {"chat_template", chat_template != nullptr ? Json(chat_template) : Json()},
                      {"bos_token", token_text(vocab, llama_vocab_bos(vocab))},
                      {"eos_token", token_text(vocab, llama_vocab_eos(vocab))},
                      {"add_bos", llama_vocab_get_add_bos(vocab)}};
    const PassFacts passes = pass_facts();
    facts["passes"] = {{"batching", passes.are_shared ? "auto" : "off"},
                       {"n_slots", passes.n_slots},
                       {"n_batch", passes.n_batch},
                       {"slot_wait_ms", passes.slot_wait_ms},
                       {"run", passes.n_passes},
                       {"sequences", passes.n_sequences},
                       {"parked_tokens", passes.n_parked}};
    return dump(facts);
}

}  // namespace eliza
