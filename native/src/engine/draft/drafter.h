// Drafters guess the next tokens of a stream. They look up earlier tokens of the same text, or use a draft model with
// llama.cpp's speculative decoding. The stream checks every guess, so a drafter cannot change the generated text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/pass/sequence.h"
#include "speculative.h"

namespace eliza {

struct DraftConfig {
    size_t least = 0;        // shorter drafts are not used
    int32_t most = 0;        // maximum number of tokens in a draft; 0 = no speculation
    std::string model_path;  // of a draft model or an MTP head; "" = the model's own head, or n-gram lookup
};

class Drafter {
public:
    // Makes the drafter of a sequence. With a model path, the file is a small model with the same vocabulary, or an MTP
    // head or an assistant for this model. Without a path, the drafter is the model's own MTP head, or n-gram lookup if
    // the model has none. Throws an Error if the file cannot be loaded or does not match the model.
    static std::unique_ptr<Drafter> make(const DraftConfig & config, Sequence & sequence, const Options & options);

    virtual ~Drafter() = default;
    Drafter(const Drafter &) = delete;
    Drafter & operator=(const Drafter &) = delete;

    // Returns whether decode_pass() must be called after every pass of the stream. Such passes, except trees, are not
    // shared with other streams.
    virtual bool looks_at_passes() const { return false; }
    // Called after the decoder has decoded the stream's text from `begin` to `end`.
    virtual void decode_pass(const llama_token * /*text*/, size_t /*begin*/, size_t /*end*/) {}

    // Returns whether draft() uses the decoder's threads, so that no pass may run at the same time.
    virtual bool uses_decoder() const { return true; }

    // Returns up to `most` tokens that may follow `tokens`, or none. `tokens` must not be empty; its last token is not
    // decoded yet.
    virtual std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) = 0;

protected:
    explicit Drafter(std::shared_ptr<Model> model = nullptr, llama_seq_id sequence = 0)
        : model_(std::move(model)), sequence_(sequence) {}

    // Creates the context, for one sequence of the decoder's context length. Throws an Error.
    void make_context(const Model & model, Decoder & decoder, llama_context_params params);

    // Does the same as draft(), after the subclass has brought llama.cpp's drafter up to date.
    std::vector<llama_token> guess(const std::vector<llama_token> & tokens, int32_t most);

    const std::shared_ptr<Model> model_;      // the draft model or head, if it has its own file
    const llama_seq_id sequence_;             // the only sequence that is used in the draft context
    std::shared_ptr<llama_context> context_;  // of the draft model or head, if there is one
    common_speculative_ptr speculative_;
};

}  // namespace eliza
