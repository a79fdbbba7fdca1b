#include "engine/drafter.h"

#include <algorithm>

#include "common.h"
#include "log.h"
#include "speculative.h"

namespace eliza {
namespace {

constexpr uint16_t n_gram = 3;  // tokens that have to be the same before a guess
constexpr llama_seq_id sequence = 0;
constexpr uint32_t n_batch = 512;

llama_context_ptr new_draft_context(llama_model * model, int32_t n_ctx, int32_t n_threads) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(n_ctx);
    params.n_batch = params.n_ubatch = n_batch;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = n_threads;
    params.no_perf = true;
    const LlamaErrorCapture capture;
    llama_context_ptr context(llama_init_from_model(model, params));
    if (context == nullptr) {
        throw Error(ELIZA_ERR_FFI_FAULT, "cannot create a context for the draft model" + capture.suffix());
    }
    return context;
}

}  // namespace

Drafter::Drafter(const DraftConfig & config, Decoder & decoder, const Options & options)
    : least_(config.least), speculative_(nullptr, common_speculative_free) {
    common_params_speculative params;
    params.draft.n_max = config.most;
    params.ngram_simple.size_n = n_gram;
    params.ngram_simple.size_m = static_cast<uint16_t>(config.most);
    if (config.model_path.empty()) {
        params.types = {COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE};
    } else {
        // Those that read the target's hidden states are told apart by their files.
        for (const common_speculative_type kind : common_speculative_types_from_gguf(config.model_path)) {
            if (kind != COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE) {
                throw invalid_argument("mtp_drafter_path: \"" + config.model_path + "\" is a drafter of the kind " +
                                       common_speculative_type_to_str(kind) +
                                       "; this library drafts with whole models of the same vocabulary");
            }
        }
        model_ = Model::load(config.model_path, options.n_gpu_layers, options.use_mmap, {});
        context_ = new_draft_context(model_->get(), decoder.n_ctx(), decoder.n_threads());
        params.types = {COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE};
        params.draft.ctx_tgt = decoder.context();
        params.draft.ctx_dft = context_.get();
    }
    try {
        speculative_.reset(common_speculative_init(params, 1));
    } catch (const std::exception & error) {
        throw invalid_argument("mtp_drafter_path: \"" + config.model_path + "\": " + error.what());
    }
}

Drafter::~Drafter() = default;

bool Drafter::catch_up(const std::vector<llama_token> & tokens) {
    const auto n_wanted = tokens.size() - 1;
    const auto differs = std::mismatch(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n_wanted),
                                       cached_.begin(), cached_.end());
    auto n_kept = static_cast<size_t>(differs.second - cached_.begin());
    if (!llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, static_cast<llama_pos>(n_kept), -1)) {
        llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, -1, -1);
        n_kept = 0;
    }
    cached_.resize(n_kept);
    while (cached_.size() < n_wanted) {
        common_batch batch(context_.get());
        const size_t end = std::min(n_wanted, cached_.size() + n_batch);
        for (size_t i = cached_.size(); i < end; ++i) {
            batch.add(tokens[i], static_cast<llama_pos>(i), sequence, false);
        }
        if (!common_speculative_process(speculative_.get(), batch)) {
            llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, -1, -1);
            cached_.clear();
            return false;
        }
        cached_.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end));
    }
    return true;
}

std::vector<llama_token> Drafter::draft(const std::vector<llama_token> & tokens, int32_t most) {
    if (context_ != nullptr && !catch_up(tokens)) {
        return {};
    }
    const llama_tokens before(tokens.begin(), tokens.end() - 1);
    llama_tokens drafted;
    common_speculative_draft_params & request = common_speculative_get_draft_params(speculative_.get(), sequence);
    request.drafting = true;
    request.n_max = most;
    request.pos0 = static_cast<llama_pos>(before.size());
    request.id_last = tokens.back();
    request.prompt = &before;
    request.result = &drafted;
    common_speculative_draft(speculative_.get());
    if (context_ != nullptr) {
        // The last token and all drafted ones but the last were decoded.
        cached_ = tokens;
        cached_.insert(cached_.end(), drafted.begin(), drafted.empty() ? drafted.end() : drafted.end() - 1);
    }
    if (drafted.size() < static_cast<size_t>(std::max(1, least_))) {
        drafted.clear();
    }
    return drafted;
}

}  // namespace eliza
