#include "engine/draft/drafter.h"

#include <algorithm>

#include "common.h"
#include "engine/draft/mtp_drafter.h"
#include "engine/draft/ngram_lookup.h"
#include "llama-context.h"
#include "log.h"

namespace eliza {
namespace {

// Drafts by n-gram lookup in the text.
class NGramDrafter : public Drafter {
public:
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) override {
        return lookup_.draft(tokens, most);
    }

    bool uses_decoder() const override { return false; }

private:
    NGramLookup lookup_;
};

// Drafts with a small model of the same vocabulary.
class ModelDrafter : public Drafter {
public:
    ModelDrafter(const DraftConfig & config, std::shared_ptr<Model> model, Decoder & decoder)
        : Drafter(std::move(model)), decoder_(decoder) {
        llama_context_params params = llama_context_default_params();
        params.n_batch = n_batch;
        make_context(*model_, decoder, params);
        common_params_speculative speculative;
        speculative.types = {COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE};
        speculative.draft.n_max = config.most;
        speculative.draft.ctx_tgt = decoder.context();
        speculative.draft.ctx_dft = context_.get();
        try {
            speculative_.reset(common_speculative_init(speculative, 1));
        } catch (const std::exception & error) {
            throw invalid_argument("mtp_drafter_path: \"" + config.model_path + "\": " + error.what());
        }
    }

    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) override {
        catch_up(tokens);
        std::vector<llama_token> drafted;
        {
            const ComputeThreads::Turn turn = turn_for(1, 1);
            drafted = guess(tokens, most);
        }
        // guess() has decoded the last token, and all drafted tokens except the last.
        cached_ = tokens;
        cached_.insert(cached_.end(), drafted.begin(), drafted.empty() ? drafted.end() : drafted.end() - 1);
        return drafted;
    }

private:
    static constexpr uint32_t n_batch = 512;

    ComputeThreads::Turn turn_for(size_t n_tokens, size_t n_rows) {
        return {decoder_.runner().threads(), context_.get(), model_->n_products(n_tokens, n_rows)};
    }

    // Makes the model's cache hold all tokens except the last.
    void catch_up(const std::vector<llama_token> & tokens) {
        const auto end = tokens.end() - 1;
        const auto differs = std::mismatch(tokens.begin(), end, cached_.begin(), cached_.end());
        auto n_kept = static_cast<size_t>(differs.second - cached_.begin());
        llama_memory_t memory = llama_get_memory(context_.get());
        if (!llama_memory_seq_rm(memory, sequence_, static_cast<llama_pos>(n_kept), -1)) {
            llama_memory_seq_rm(memory, sequence_, -1, -1);
            n_kept = 0;
        }
        cached_.resize(n_kept);
        for (auto next = tokens.begin() + static_cast<ptrdiff_t>(n_kept); next != end;) {
            const auto stop = next + std::min<ptrdiff_t>(end - next, n_batch);
            common_batch batch(context_.get());
            for (auto token = next; token != stop; ++token) {
                batch.add(*token, static_cast<llama_pos>(token - tokens.begin()), sequence_, false);
            }
            const ComputeThreads::Turn turn = turn_for(static_cast<size_t>(stop - next), 0);
            const LlamaErrorCapture capture;
            if (!common_speculative_process(speculative_.get(), batch)) {
                llama_memory_seq_rm(memory, sequence_, -1, -1);
                cached_.clear();
                throw capture.error(ELIZA_ERR_FFI_FAULT, "the draft model failed");
            }
            cached_.insert(cached_.end(), next, stop);
            next = stop;
        }
    }

    Decoder & decoder_;
    std::vector<llama_token> cached_;  // tokens in the context
};

}  // namespace

std::unique_ptr<Drafter> Drafter::make(const DraftConfig & config, Sequence & sequence, const Options & options) {
    Decoder & decoder = sequence.decoder();
    if (config.model_path.empty()) {
        if (decoder.model().has_mtp_head()) {
            return std::make_unique<MtpDrafter>(config, nullptr, sequence);
        }
        return std::make_unique<NGramDrafter>();
    }
    ModelSettings settings{options.n_gpu_layers, options.use_mmap, options.devices, /*with_mtp_head=*/false};
    settings.devices.rpc.clear();  // a small model does not gain from devices on other machines
    std::shared_ptr<Model> model = Model::load(config.model_path, settings);
    if (model->is_assistant()) {
        return std::make_unique<MtpDrafter>(config, std::move(model), sequence);
    }
    if (!model->has_trunk()) {
        settings.with_mtp_head = true;
        model = Model::load(config.model_path, settings);
        if (model->has_mtp_head()) {
            return std::make_unique<MtpDrafter>(config, std::move(model), sequence);
        }
    }
    // llama.cpp recognizes further kinds of drafters by their files. A whole model with an MTP head counts as a model.
    std::string kind = model->has_trunk() ? "" : "head";
    for (const common_speculative_type type : common_speculative_types_from_gguf(config.model_path)) {
        if (type != COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE && type != COMMON_SPECULATIVE_TYPE_DRAFT_MTP) {
            kind = common_speculative_type_to_str(type);
        }
    }
    if (!kind.empty()) {
        throw invalid_argument(
            "mtp_drafter_path: \"" + config.model_path + "\" is an unsupported kind of drafter: " + kind +
            " (architecture " + model->architecture() +
            "); supported: whole models with the same vocabulary, MTP heads, and assistants of Gemma 4");
    }
    return std::make_unique<ModelDrafter>(config, std::move(model), decoder);
}

void Drafter::make_context(const Model & model, Decoder & decoder, llama_context_params params) {
    params.n_ctx = static_cast<uint32_t>(decoder.n_ctx());
    params.n_ubatch = params.n_batch;
    params.n_seq_max = 1;
    params.n_outputs_max = 1;
    params.no_perf = true;
    if (!decoder.context()->get_cparams().flash_attn) {
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // as in the checked model's context
    }
    context_ = model.new_context(params, "to draft in");
    decoder.runner().threads().attach_to(context_.get());
}

std::vector<llama_token> Drafter::guess(const std::vector<llama_token> & tokens, int32_t most) {
    const llama_tokens before(tokens.begin(), tokens.end() - 1);
    llama_tokens drafted;
    common_speculative_draft_params & request = common_speculative_get_draft_params(speculative_.get(), sequence_);
    request.drafting = true;
    request.n_max = most;
    request.pos0 = static_cast<llama_pos>(before.size());
    request.id_last = tokens.back();
    request.prompt = &before;
    request.result = &drafted;
    common_speculative_draft(speculative_.get());
    return drafted;
}

}  // namespace eliza
