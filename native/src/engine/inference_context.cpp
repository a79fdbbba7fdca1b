#include "engine/inference_context.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/cache/slot_file.h"
#include "engine/pass/sequence.h"

namespace eliza {

// How many snapshots of a recurrent state serve drafts of so many tokens. Each holds all of the state, for every
// slot; few different numbers let streams share a decoder.
static int32_t snapshots_for(int32_t longest_draft) {
    for (const int32_t n : {0, 4, 8}) {
        if (longest_draft <= n) {
            return n;
        }
    }
    return 16;
}

static bool is_same_file(const std::string & a, const std::string & b) {
    std::error_code error;
    return std::filesystem::equivalent(a, b, error);
}

ContextStage InferenceContext::stage_locked() const {
    if (stream_opened_) {
        return ContextStage::stream_opened;
    }
    return model_ != nullptr ? ContextStage::model_loaded : ContextStage::created;
}

void InferenceContext::set_option(const std::string & key, const std::string & value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    eliza::set_option(options_, stage_locked(), key, value);
}

void InferenceContext::set_progress(Progress progress) {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress_ = std::move(progress);
}

std::shared_ptr<Model> InferenceContext::model_locked() {
    if (model_ == nullptr) {
        model_fingerprint_ = fingerprint_of_file(model_path_);
        const std::shared_ptr<Model> model = Model::load(
            model_path_, {options_.n_gpu_layers, options_.use_mmap, options_.devices, options_.with_mtp_head},
            progress_);
        if (!model->has_trunk()) {
            throw Error(ELIZA_ERR_BUNDLE_INVALID,
                        "the model " + model_path_ + " is a head for another one (mtp_drafter_path)");
        }
        model_ = model;
    }
    return model_;
}

std::shared_ptr<Model> InferenceContext::model() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return model_locked();
}

int32_t InferenceContext::option_n_threads() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return options_.n_threads;
}

bool InferenceContext::has_open_streams_locked() const {
    // A stream shares its decoder; one that is in no other hands is idle.
    return std::any_of(decoders_.begin(), decoders_.end(),
                       [](const auto & decoder) { return decoder.second.use_count() > 1; });
}

void InferenceContext::unload_if_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_open_streams_locked()) {
        decoders_.clear();
        embedder_.reset();
        model_.reset();
        stream_opened_ = false;
    }
}

// The configuration knows five settings; where it leaves one off, as it does all others, the option holds.
static SamplingParams with_defaults(const SamplingParams & asked, SamplingParams params) {
    if (asked.temperature > 0.0f) {
        params.temperature = asked.temperature;
    }
    if (asked.top_k > 0) {
        params.top_k = asked.top_k;
    }
    if (asked.top_p > 0.0f && asked.top_p < 1.0f) {
        params.top_p = asked.top_p;
    }
    if (asked.repeat_penalty > 0.0f && asked.repeat_penalty != 1.0f) {
        params.repeat_penalty = asked.repeat_penalty;
    }
    params.disable_thinking = params.disable_thinking || asked.disable_thinking;
    return params;
}

std::shared_ptr<Decoder> InferenceContext::decoder_locked(const DecoderSettings & settings) {
    const std::shared_ptr<Model> model = model_locked();
    const auto known = decoders_.find(settings);
    return known != decoders_.end() ? known->second : std::make_shared<Decoder>(model, options_, settings);
}

std::shared_ptr<Embedder> InferenceContext::embedder() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (embedder_ == nullptr) {
        embedder_ = std::make_shared<Embedder>(model_locked(), options_);
    }
    return embedder_;
}

InferenceContext::NextToken InferenceContext::score_next(const llama_token * tokens, size_t n, llama_token target) {
    std::shared_ptr<Decoder> decoder;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        decoder = decoder_locked({});
        if (n > static_cast<size_t>(decoder->n_ctx())) {
            throw invalid_argument(std::to_string(n) + " tokens do not fit the context of " +
                                   std::to_string(decoder->n_ctx()) + " (option n_ctx)");
        }
        decoder->model().check_tokens(tokens, n);
        decoder->model().check_tokens(&target, 1);
        decoders_[{}] = decoder;
        stream_opened_ = true;
    }
    Sequence sequence(decoder, -1, "");
    sequence.append(tokens, n);
    std::atomic<bool> cancelled{false};
    Turn turn(decoder->turns(), cancelled);
    Sequence::Cost cost;
    const float * logits = sequence.logits(turn, cost);
    const int32_t n_vocab = decoder->model().n_vocab();
    const llama_token top = argmax(logits, n_vocab);
    const double total = log_sum_exp(logits, static_cast<size_t>(n_vocab));
    const auto probability = [&](llama_token token) { return static_cast<float>(std::exp(logits[token] - total)); };
    return {probability(target), top, probability(top)};
}

std::shared_ptr<Stream> InferenceContext::open_stream(OpenRequest request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stream_opened_ && request.n_gpu_layers && *request.n_gpu_layers != options_.n_gpu_layers) {
        options_.n_gpu_layers = *request.n_gpu_layers;
        // Loaded for its vocabulary, say, before any stream asked for layers elsewhere.
        if (model_ != nullptr && llama_supports_gpu_offload() && model_->n_gpu_layers() != options_.n_gpu_layers) {
            model_.reset();
        }
    }
    DecoderSettings settings{request.kv_types};
    if (model_locked()->can_keep_snapshots()) {
        settings.n_snapshots = snapshots_for(request.stream.draft.most);
    }
    if (model_->has_mtp_head() && is_same_file(request.stream.draft.model_path, model_path_)) {
        request.stream.draft.model_path.clear();
    }
    const std::shared_ptr<Decoder> decoder = decoder_locked(settings);
    request.stream.model_fingerprint = model_fingerprint_;
    request.stream.sampling = with_defaults(request.stream.sampling, options_.sampling);
    auto stream = std::make_shared<Stream>(decoder, request.stream, options_, progress_, verifier_);
    // Only now: after a failure the options may still change.
    decoders_[settings] = decoder;
    stream_opened_ = true;
    return stream;
}

}  // namespace eliza
