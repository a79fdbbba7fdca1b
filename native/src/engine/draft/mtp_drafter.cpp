#include "engine/draft/mtp_drafter.h"

#include <algorithm>

#include "common.h"

namespace eliza {
namespace {

// Checks what llama.cpp assumes or asserts.
void check_head(const std::string & path, const Model & head, const Model & model) {
    const auto require_same = [&](const std::string & what, const std::string & of_head, const std::string & of_model) {
        if (of_head != of_model) {
            throw invalid_argument("it was made for another model: expected " + what + " " + of_model + ", got " +
                                   of_head);
        }
    };
    try {
        if (head.is_assistant()) {
            model.require_fit(head);
        } else {
            require_same("architecture", head.architecture(), model.architecture());
        }
        require_same("vocabulary size", std::to_string(head.n_vocab()), std::to_string(model.n_vocab()));
        require_same("embedding size", std::to_string(llama_model_n_embd_out(head.get())),
                     std::to_string(llama_model_n_embd_out(model.get())));
        if (head.is_assistant() && !model.rpc_servers().empty()) {
            throw invalid_argument("assistants do not work with devices on other machines (option rpc)");
        }
    } catch (const Error & error) {
        throw Error(error.status(), "mtp_drafter_path: \"" + path + "\": " + error.what());
    }
}

// An assistant has the stream's sequence in the cells that it reads. A head has cells of its own, with one sequence.
llama_seq_id sequence_of(const Model * head, const Slot & slot) {
    return head != nullptr && head->is_assistant() ? slot.id : 0;
}

}  // namespace

MtpDrafter::MtpDrafter(const DraftConfig & config, std::shared_ptr<Model> head, Sequence & sequence)
    : Drafter(head, sequence_of(head.get(), sequence.slot())),
      most_(std::min(config.most, sequence.decoder().most_ahead())),
      n_products_(reads_cells() ? model_->n_products(1, 0)
                                : sequence.decoder().model().n_products(1, 0) /
                                      static_cast<uint64_t>(llama_model_n_layer(sequence.decoder().model().get()) + 1)),
      n_output_products_(sequence.decoder().model().n_products(0, 1)),
      hidden_states_(sequence.decoder().runner()),
      decoder_(sequence.decoder()),
      slot_(sequence.slot()) {
    if (model_ != nullptr) {
        check_head(config.model_path, *model_, decoder_.model());
    }
    if (reads_cells()) {
        sequence.run_alone([&] { context_ = decoder_.context_of_assistant(model_); });
        return;
    }
    llama_context_params params = llama_context_default_params();
    params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    params.ctx_other = decoder_.context();
    params.n_batch = llama_n_batch(decoder_.context());  // the head gets the same batches
    make_context(model_ != nullptr ? *model_ : decoder_.model(), decoder_, params);
}

// llama.cpp's drafter keeps the hidden state of the last token and cannot be cleared, so this makes a new one.
void MtpDrafter::start_anew() {
    common_params_speculative params;
    params.types = {COMMON_SPECULATIVE_TYPE_DRAFT_MTP};
    params.draft.n_max = most_;
    params.draft.ctx_tgt = decoder_.context();
    params.draft.ctx_dft = context_.get();
    params.draft.backend_sampling = false;
    speculative_.reset();  // first, because its samplers are attached to the context
    speculative_.reset(common_speculative_init(params, static_cast<uint32_t>(sequence_) + 1));
    llama_memory_seq_rm(llama_get_memory(context_.get()), sequence_, -1, -1);
    text_.clear();
    pass_begin_ = 0;
    has_drafted_ = false;
}

bool MtpDrafter::step_back_to(const llama_token * text, size_t n) {
    if (n <= pass_begin_ || n > text_.size() || !std::equal(text, text + n, text_.begin())) {
        return false;
    }
    if (n < text_.size()) {
        if (!has_drafted_) {
            return false;  // llama.cpp asserts that accepted tokens were drafted
        }
        common_speculative_accept(speculative_.get(), sequence_, static_cast<uint16_t>(n - pass_begin_ - 1));
    }
    text_.resize(n);
    return llama_memory_seq_rm(llama_get_memory(context_.get()), sequence_, static_cast<llama_pos>(n), -1);
}

void MtpDrafter::decode_pass(const llama_token * text, size_t begin, size_t end) {
    // If the head has not processed the text before `begin`, for example because another slot decoded it, the head
    // starts with the tokens of this pass.
    if (!step_back_to(text, begin)) {
        start_anew();
    }
    const ComputeThreads::Turn turn(decoder_.runner().threads(), context_.get(), n_products_ * (end - begin));
    common_batch batch(context_.get());
    for (size_t i = begin; i < end; ++i) {
        batch.add(text[i], static_cast<llama_pos>(i), sequence_, false);
    }
    if (common_speculative_process(speculative_.get(), batch)) {
        text_.assign(text, text + end);
        pass_begin_ = begin;
    } else {
        start_anew();
    }
}

std::vector<llama_token> MtpDrafter::draft(const std::vector<llama_token> & tokens, int32_t most) {
    // llama.cpp always drafts the number of tokens that its drafter was created for.
    const size_t n_needed = tokens.size() + static_cast<size_t>(most_);
    if (n_needed > static_cast<size_t>(decoder_.n_ctx()) || !step_back_to(tokens.data(), tokens.size() - 1)) {
        return {};
    }
    // An assistant must not attend to tokens of an earlier draft.
    if (reads_cells() && decoder_.cache().truncate(slot_, tokens.size() - 1) != tokens.size() - 1) {
        return {};
    }
    const ComputeThreads::Turn turn(decoder_.runner().threads(), context_.get(), n_products_ + n_output_products_);
    std::vector<llama_token> drafted = guess(tokens, most);
    has_drafted_ = has_drafted_ || !drafted.empty();
    return drafted;
}

}  // namespace eliza
