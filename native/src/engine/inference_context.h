// The object of an EliInferenceContext handle: a model file, its options, and, once they are needed, the loaded model
// and its decoders. Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/decision.h"
#include "engine/choice/prepared_choices.h"
#include "engine/embedder.h"
#include "engine/model/model.h"
#include "engine/pass/decoder.h"
#include "engine/stream/stream.h"

namespace eliza {

class InferenceContext {
public:
    // Throws an Error if there is no model at `bundle`.
    explicit InferenceContext(const std::string & bundle) : model_path_(find_model_file(bundle)) {}

    void set_option(const std::string & key, const std::string & value);
    void set_progress(Progress progress);
    void set_verifier(eliza_verifier_callback callback, void * user) { verifier_->set(callback, user); }

    // Returns the model. Loads it first if necessary.
    std::shared_ptr<Model> model();

    // Tokenizes the choices. Loads the model first if necessary. Throws Error.
    std::shared_ptr<const PreparedChoices> prepare_choices(const std::vector<std::string> & texts);

    // Like prepare_choices(), for the leaves of a payload.
    std::shared_ptr<const PreparedChoices> prepare_payload(std::string_view payload);

    // Closes the context: no stream can be opened any more, and callers waiting for a slot get an Error. Cancels a
    // running load and the calls that need no stream, and waits for them.
    void close();

    // Frees the model and the KV caches, unless a stream is open.
    void unload_if_idle();

    struct OpenRequest {
        StreamConfig stream;
        KvTypes kv_types;
        std::optional<int32_t> n_gpu_layers;  // only the first stream's value has an effect
        bool takes_any_types = false;         // if there are streams, use their cache instead of one with kv_types
    };
    std::shared_ptr<Stream> open_stream(OpenRequest request);

    // Returns the number of values in an embedding.
    int32_t embedding_size() { return embedder()->size(); }

    // Returns the embeddings of texts, and the relevance of documents; see Embedder.
    std::vector<std::vector<float>> embed(const std::vector<std::string_view> & texts, Pooling pooling,
                                          Embedder::LongTexts long_texts);
    std::vector<float> rerank(std::string_view query, const std::vector<std::string_view> & documents);

    // Writes the values of single tokens; see Embedder::embed_tokens().
    void embed_tokens(const llama_token * tokens, const int32_t * roles, size_t n, const int32_t * positions,
                      size_t n_positions, float * out);

    // Makes a decision in a free slot. cancel_decision() with the same `cancelled` ends it; if that is set already, the
    // decision is not made. Sets *passes and *tokens_cached, also if it throws.
    struct DecisionRequest {
        Decision decision;
        KvTypes kv_types;
        SlotWish slot;
        int32_t * cancelled;
        int64_t * passes;
        int64_t * tokens_cached;
    };
    std::vector<EndingScores> decide(DecisionRequest request);
    void cancel_decision(int32_t & cancelled);

    struct NextToken {
        float probability;  // of the target token
        llama_token top;    // the most probable token
        float top_probability;
    };
    // Computes the probability that `target` follows the tokens, and the most probable next token. Uses a free slot
    // while it runs. Throws an Error for tokens outside the vocabulary.
    NextToken score_next(const llama_token * tokens, size_t n, llama_token target);

    // Returns facts about the model as JSON. Loads the model first if necessary.
    std::string describe();

private:
    // How forward passes are run, and counts of them.
    struct PassFacts {
        bool are_shared;
        int32_t n_slots, n_batch;
        int64_t slot_wait_ms;
        int64_t n_passes, n_sequences;
        size_t n_parked;
        int32_t n_ctx;  // 0 before the first stream was opened
    };

    // A running call that close() cancels and waits for.
    class RunningCall {
    public:
        // Throws an Error if the context is closed. *cancelled_by_caller cancels the call if it is set already.
        explicit RunningCall(InferenceContext & context, const int32_t * cancelled_by_caller = nullptr);
        ~RunningCall();
        RunningCall(const RunningCall &) = delete;
        RunningCall & operator=(const RunningCall &) = delete;

        CancelFlag cancelled;
        const int32_t * const cancelled_by_caller;

    private:
        InferenceContext & context_;
    };

    std::shared_ptr<Embedder> embedder();
    std::shared_ptr<Model> model_locked();
    std::shared_ptr<ComputeThreads> threads_locked();
    DecoderSettings usual_settings_locked() const;
    std::shared_ptr<Decoder> decoder_locked(const DecoderSettings & settings);
    void note_opened(const DecoderSettings & settings, bool was_opened);
    template <typename Open>
    auto opened(std::shared_ptr<Decoder> & decoder, const DecoderSettings & settings, const Open & open);
    ContextStage stage_locked() const;
    bool has_open_streams_locked() const;
    int32_t option_n_threads();
    PassFacts pass_facts();

    const std::string model_path_;
    std::mutex mutex_;
    Options options_;
    Progress progress_;
    const std::shared_ptr<VerifierHook> verifier_ = std::make_shared<VerifierHook>();
    std::shared_ptr<Model> model_;
    std::shared_ptr<ComputeThreads> threads_;  // shared by the decoders and the embedder
    std::shared_ptr<Embedder> embedder_;
    struct KnownDecoder {
        std::shared_ptr<Decoder> decoder;
        bool was_opened = false;  // true once a stream was opened on it successfully
    };
    std::map<DecoderSettings, KnownDecoder> decoders_;
    bool stream_opened_ = false;
    std::atomic<bool> is_closed_{false};
    std::set<RunningCall *> running_calls_;
    std::condition_variable call_ended_;
};

// Returns facts about the library and this machine as JSON.
std::string describe_library();

}  // namespace eliza
