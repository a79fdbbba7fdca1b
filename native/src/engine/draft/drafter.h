// Guesses at what a stream will generate next: by the text itself, or by models with llama.cpp's own
// speculative code. They are only checked, so they never change what is generated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/pass/decoder.h"
#include "speculative.h"

namespace eliza {

struct DraftConfig {
    size_t least = 0;        // shorter drafts are not worth checking
    int32_t most = 0;        // tokens of a draft; 0: no speculation
    std::string model_path;  // "": what the model itself has
};

class Drafter {
public:
    // The one that the configuration asks for: a small model of the same vocabulary or a head for this one,
    // from a file of its own; or else the model's own head; or else what followed the same tokens
    // before. Throws Error where a file cannot be loaded or does not go with the model.
    static std::unique_ptr<Drafter> make(const DraftConfig & config, Decoder & decoder, const Options & options);

    virtual ~Drafter() = default;
    Drafter(const Drafter &) = delete;
    Drafter & operator=(const Drafter &) = delete;

    // True where it wants to be told of passes, which then run alone: the decoder has just run the tokens of the
    // stream's text from `begin` to `end`.
    virtual bool looks_at_passes() const { return false; }
    virtual void decode_pass(const llama_token * /*text*/, size_t /*begin*/, size_t /*end*/) {}

    // True where it drafts on the decoder's threads: then no pass may run meanwhile.
    virtual bool uses_decoder() const { return true; }

    // What may follow the tokens, of which the last was not decoded yet: `most` at the most, or none. Not
    // empty: `tokens`.
    virtual std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) = 0;

protected:
    explicit Drafter(std::shared_ptr<Model> model = nullptr) : model_(std::move(model)) {}

    // Makes the context, for one sequence as long as the decoder's. Throws Error.
    void make_context(const Model & model, Decoder & decoder, llama_context_params params);

    // The same, once llama.cpp's drafter knows all that it needs.
    std::vector<llama_token> guess(const std::vector<llama_token> & tokens, int32_t most);

    static constexpr llama_seq_id sequence = 0;  // the only one of a draft context

    const std::shared_ptr<Model> model_;  // that guesses, if it has a file of its own
    llama_context_ptr context_;           // in which it does, if there is one
    common_speculative_ptr speculative_;
};

}  // namespace eliza
