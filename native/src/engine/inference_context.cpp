#include "engine/inference_context.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/cache/slot_file.h"
#include "engine/pass/sequence.h"
#include "platform/files.h"

namespace eliza {

// Returns the number of snapshots of a recurrent state to keep for drafts of up to `longest_draft` tokens. Each
// snapshot stores the whole state for every slot. Rounding to a few numbers lets streams with different limits share a
// decoder.
static int32_t snapshots_for(int32_t longest_draft) {
    for (const int32_t n : {0, 4, 8}) {
        if (longest_draft <= n) {
            return n;
        }
    }
    return 16;
}

static bool is_same_file(const std::string & a, const std::string & b) {
    const std::string version = version_of_file(a);
    return !version.empty() && version == version_of_file(b);
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
        const std::shared_ptr<Model> model = Model::load(
            model_path_,
            {options_.n_gpu_layers, options_.use_mmap, options_.devices, options_.with_mtp_head, options_.lora},
            progress_, &is_closed_);
        if (model->is_assistant() || !model->has_trunk()) {
            throw Error(ELIZA_ERR_BUNDLE_INVALID, "the model " + model_path_ + " contains only an " +
                                                      (model->is_assistant() ? "assistant" : "MTP head") +
                                                      ": pass it as mtp_drafter_path of the model it was made for");
        }
        model_ = model;
    }
    return model_;
}

std::shared_ptr<Model> InferenceContext::model() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return model_locked();
}

std::shared_ptr<const PreparedChoices> InferenceContext::prepare_choices(const std::vector<std::string> & texts) {
    return std::make_shared<const PreparedChoices>(*model(), texts);
}

std::shared_ptr<const PreparedChoices> InferenceContext::prepare_payload(std::string_view payload) {
    std::shared_ptr<Model> model;
    std::string model_id;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        model = model_locked();
        model_id = options_.model_id;
    }
    return std::make_shared<const PreparedChoices>(*model, trie_of_payload(payload, *model, model_id));
}

int32_t InferenceContext::option_n_threads() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return options_.n_threads;
}

bool InferenceContext::has_open_streams_locked() const {
    // Every stream holds its decoder. A decoder with no other owner is idle.
    return std::any_of(decoders_.begin(), decoders_.end(),
                       [](const auto & decoder) { return decoder.second.decoder.use_count() > 1; });
}

void InferenceContext::close() {
    is_closed_ = true;  // before locking, because a thread that loads the model holds the mutex
    std::unique_lock<std::mutex> lock(mutex_);
    for (RunningCall * call : running_calls_) {
        call->cancelled.set();
    }
    for (const auto & [settings, known] : decoders_) {
        known.decoder->cache().slots().close();
        known.decoder->queue().wake_cancelled();
    }
    call_ended_.wait(lock, [&] { return running_calls_.empty(); });
}

InferenceContext::RunningCall::RunningCall(InferenceContext & context, const int32_t * by_caller)
    : cancelled_by_caller(by_caller), context_(context) {
    const std::lock_guard<std::mutex> lock(context.mutex_);
    if (context.is_closed_) {
        throw invalid_argument("the context is destroyed");
    }
    if (by_caller != nullptr && *by_caller != 0) {
        cancelled.set();
    }
    context.running_calls_.insert(this);
}

InferenceContext::RunningCall::~RunningCall() {
    const std::lock_guard<std::mutex> lock(context_.mutex_);
    context_.running_calls_.erase(this);
    context_.call_ended_.notify_all();
}

void InferenceContext::unload_if_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_open_streams_locked()) {
        decoders_.clear();
        embedder_.reset();
        threads_.reset();
        model_.reset();
        stream_opened_ = false;
    }
}

// A stream's configuration has only the five settings below. If one of them is off, the value from the options applies.
// All other settings always come from the options.
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

std::shared_ptr<ComputeThreads> InferenceContext::threads_locked() {
    if (threads_ == nullptr || threads_->option() != options_.n_threads) {
        threads_ = std::make_shared<ComputeThreads>(options_.n_threads);
    }
    return threads_;
}

// Returns the settings of a decoder that exists already, if possible with the default types: another decoder would need
// a KV cache of its own.
DecoderSettings InferenceContext::usual_settings_locked() const {
    const bool has_other_only = !decoders_.empty() && decoders_.count({}) == 0;
    return has_other_only ? decoders_.begin()->first : DecoderSettings{};
}

std::shared_ptr<Decoder> InferenceContext::decoder_locked(const DecoderSettings & settings) {
    if (is_closed_) {
        throw invalid_argument("the context is destroyed");
    }
    const std::shared_ptr<Model> model = model_locked();
    const auto known = decoders_.find(settings);
    if (known != decoders_.end()) {
        return known->second.decoder;
    }
    auto decoder = std::make_shared<Decoder>(model, threads_locked(), options_, settings);
    decoders_[settings].decoder = decoder;
    stream_opened_ = true;
    return decoder;
}

// If no stream could be opened, the options may be changed again, unless another stream was opened in the meantime.
void InferenceContext::note_opened(const DecoderSettings & settings, bool was_opened) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = decoders_.find(settings);
    if (known == decoders_.end()) {
        return;
    }
    known->second.was_opened = known->second.was_opened || was_opened;
    if (!known->second.was_opened && known->second.decoder.use_count() == 1) {
        decoders_.erase(known);
        stream_opened_ = !decoders_.empty();
    }
}

// Returns what `open` opens on the decoder, and notes whether it succeeded.
template <typename Open>
auto InferenceContext::opened(std::shared_ptr<Decoder> & decoder, const DecoderSettings & settings, const Open & open) {
    try {
        auto found = open();
        note_opened(settings, true);
        return found;
    } catch (...) {
        decoder.reset();
        note_opened(settings, false);
        throw;
    }
}

std::shared_ptr<Embedder> InferenceContext::embedder() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (embedder_ == nullptr) {
        embedder_ = std::make_shared<Embedder>(model_locked(), threads_locked());
    }
    return embedder_;
}

std::vector<std::vector<float>> InferenceContext::embed(const std::vector<std::string_view> & texts, Pooling pooling,
                                                        Embedder::LongTexts long_texts) {
    RunningCall call(*this);
    return embedder()->embed(texts, pooling, long_texts, call.cancelled);
}

std::vector<float> InferenceContext::rerank(std::string_view query, const std::vector<std::string_view> & documents) {
    RunningCall call(*this);
    return embedder()->rerank(query, documents, call.cancelled);
}

void InferenceContext::embed_tokens(const llama_token * tokens, const int32_t * roles, size_t n,
                                    const int32_t * positions, size_t n_positions, float * out) {
    RunningCall call(*this);
    embedder()->embed_tokens(tokens, roles, n, positions, n_positions, out, call.cancelled);
}

std::vector<EndingScores> InferenceContext::decide(DecisionRequest request) {
    RunningCall call(*this, request.cancelled);
    call.cancelled.throw_if_set();  // before the model is loaded
    const DecoderSettings settings{request.kv_types};
    std::shared_ptr<Decoder> decoder;
    Options options;
    Progress progress;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        decoder = decoder_locked(settings);
        request.slot.most_wait = std::chrono::milliseconds(options_.slot_wait_ms);
        options = options_;
        progress = progress_;
    }
    const auto sequence =
        opened(decoder, settings, [&] { return std::make_unique<Sequence>(decoder, request.slot, call.cancelled); });
    struct Count {
        const Sequence & sequence;
        const DecisionRequest & request;
        ~Count() {
            *request.passes = sequence.counts().forward_passes;
            *request.tokens_cached = sequence.counts().prompt_tokens_reused;
        }
    } count{*sequence, request};
    return eliza::decide(*sequence, options, request.decision, progress);
}

void InferenceContext::cancel_decision(int32_t & cancelled) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled = 1;
    for (RunningCall * call : running_calls_) {
        if (call->cancelled_by_caller == &cancelled) {
            call->cancelled.set();
        }
    }
    for (const auto & [settings, known] : decoders_) {
        known.decoder->cache().slots().wake_cancelled();
        known.decoder->queue().wake_cancelled();
    }
}

InferenceContext::NextToken InferenceContext::score_next(const llama_token * tokens, size_t n, llama_token target) {
    RunningCall call(*this);
    std::shared_ptr<Decoder> decoder;
    DecoderSettings settings;
    SlotWish slot;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        model_locked()->check_tokens(&target, 1);
        settings = usual_settings_locked();
        decoder = decoder_locked(settings);
        slot.most_wait = std::chrono::milliseconds(options_.slot_wait_ms);
    }
    const auto sequence = opened(decoder, settings, [&] {
        if (n > static_cast<size_t>(decoder->n_ctx())) {  // check the length before reading the tokens
            throw ContextFull(std::to_string(n) + " tokens do not fit the context of " +
                              std::to_string(decoder->n_ctx()) + " (option n_ctx)");
        }
        decoder->model().check_tokens(tokens, n);
        return std::make_unique<Sequence>(decoder, slot, call.cancelled);
    });
    sequence->append(tokens, n);
    const float * logits = sequence->logits();
    const int32_t n_vocab = decoder->model().n_vocab();
    const llama_token top = argmax(logits, n_vocab);
    const double total = log_sum_exp(logits, static_cast<size_t>(n_vocab));
    const auto probability = [&](llama_token token) { return static_cast<float>(std::exp(logits[token] - total)); };
    return {probability(target), top, probability(top)};
}

std::shared_ptr<Stream> InferenceContext::open_stream(OpenRequest request) {
    DecoderSettings settings{request.kv_types};
    std::shared_ptr<Decoder> decoder;
    Options options;
    Progress progress;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!stream_opened_ && request.n_gpu_layers && *request.n_gpu_layers != options_.n_gpu_layers) {
            options_.n_gpu_layers = *request.n_gpu_layers;
            // The model may have been loaded before, for example for its vocabulary, with another number of layers.
            if (model_ != nullptr && llama_supports_gpu_offload() && model_->n_gpu_layers() != options_.n_gpu_layers) {
                model_.reset();
            }
        }
        if (request.takes_any_types) {
            settings = usual_settings_locked();
        } else if (model_locked()->can_keep_snapshots()) {
            settings.n_snapshots = snapshots_for(request.stream.draft.most);
        }
        if (model_locked()->has_mtp_head() && is_same_file(request.stream.draft.model_path, model_path_)) {
            request.stream.draft.model_path.clear();
        }
        decoder = decoder_locked(settings);
        request.stream.sampling = with_defaults(request.stream.sampling, options_.sampling);
        request.stream.slot.most_wait = std::chrono::milliseconds(options_.slot_wait_ms);
        options = options_;
        progress = progress_;
    }
    // Outside the lock, because this may wait for a slot or load a draft model.
    return opened(decoder, settings,
                  [&] { return std::make_shared<Stream>(decoder, request.stream, options, progress, verifier_); });
}

}  // namespace eliza
