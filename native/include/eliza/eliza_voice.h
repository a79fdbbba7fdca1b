/*
 * The voice and vision functions of elizaOS's ABI version 12. This library exports them but does not implement
 * them.
 *
 * elizaOS's loader binds the functions of the ABI in families, and leaves out a whole family if one of its symbols
 * is missing. Some voice functions belong to a family that text generation needs. Therefore all of them are
 * exported, and they report that they are not implemented:
 *
 *   - The *_supported() functions return 0.
 *   - Functions that open something return NULL. Functions that close something do nothing.
 *   - Every other call returns ELIZA_ERR_NOT_IMPLEMENTED, whatever its arguments are (cancel_tts returns ELIZA_OK).
 *   - *err, if `err` is not NULL, receives a message that names the missing feature. Free it with
 *     eliza_inference_free_string().
 *   - Outputs that are not NULL are cleared: numbers become 0, pointers NULL and strings empty. Arrays of samples,
 *     labels and embeddings are not touched.
 *
 * eliza_inference_mmap_acquire() and _evict() (eliza_inference.h) do the same for voice regions.
 */
#ifndef ELIZA_VOICE_H
#define ELIZA_VOICE_H

#include <stddef.h>
#include <stdint.h>

#include "eliza_inference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Never created. Distinct types keep a caller from mixing up handles. */
typedef struct EliAsrStream EliAsrStream;
typedef struct EliVad EliVad;
typedef struct EliWakeWord EliWakeWord;
typedef struct EliSpeaker EliSpeaker;
typedef struct EliDiariz EliDiariz;

/* ---- Text to speech --------------------------------------------------------------------------- */

/* Would write up to `cap` samples at 24 kHz to `pcm` and return their number. */
ELIZA_API int eliza_inference_tts_synthesize(EliInferenceContext * ctx, const char * text, size_t len,
                                             const char * preset, float * pcm, size_t cap, char ** err);

ELIZA_API int eliza_inference_tts_stream_supported(void); /* 0 */

/* Never called. */
typedef int (*eliza_tts_chunk_cb)(const float * pcm, size_t n_samples, int is_final, void * user);
ELIZA_API int eliza_inference_tts_synthesize_stream(EliInferenceContext * ctx, const char * text, size_t len,
                                                    const char * preset, eliza_tts_chunk_cb on_chunk, void * user,
                                                    char ** err);

/* Returns ELIZA_OK, because cancelling when nothing is running is not an error. */
ELIZA_API int eliza_inference_cancel_tts(EliInferenceContext * ctx, char ** err);

/* Would encode a reference voice into *K codebooks of *T tokens each. */
ELIZA_API int eliza_inference_encode_reference(EliInferenceContext * ctx, const float * pcm, size_t n, int rate,
                                               int * K, int * T, int ** tokens, char ** err);

/* ---- Text to speech with Kokoro --------------------------------------------------------------- */

ELIZA_API int eliza_inference_kokoro_supported(void); /* 0 */
ELIZA_API int eliza_inference_kokoro_load(EliInferenceContext * ctx, const char * gguf, const char * voice,
                                          int style_dim, char ** err);
ELIZA_API int eliza_inference_kokoro_synthesize(EliInferenceContext * ctx, const char * text, size_t len, float speed,
                                                float * pcm, size_t cap, char ** err);

/* Would return the sample rate of the loaded voice in hertz; always returns ELIZA_ERR_NOT_IMPLEMENTED. */
ELIZA_API int eliza_inference_kokoro_sample_rate(EliInferenceContext * ctx);

/* ---- Speech recognition ----------------------------------------------------------------------- */

/* Would write the transcript and return its length in bytes. */
ELIZA_API int eliza_inference_asr_transcribe(EliInferenceContext * ctx, const float * pcm, size_t n, int rate,
                                             char * text, size_t cap, char ** err);

ELIZA_API int eliza_inference_asr_timestamps_supported(void); /* 0 */

/* Would also write the start and end time of each word. *io_n is the capacity in words, and would become their
 * number. */
ELIZA_API int eliza_inference_asr_transcribe_timed(EliInferenceContext * ctx, const float * pcm, size_t n, int rate,
                                                   char * text, size_t cap, int * start_ms, int * end_ms, size_t * io_n,
                                                   char ** err);

ELIZA_API int eliza_inference_asr_stream_supported(void); /* 0 */
ELIZA_API EliAsrStream * eliza_inference_asr_stream_open(EliInferenceContext * ctx, int rate, char ** err);
ELIZA_API int eliza_inference_asr_stream_feed(EliAsrStream * stream, const float * pcm, size_t n, char ** err);
ELIZA_API int eliza_inference_asr_stream_partial(EliAsrStream * stream, char * text, size_t cap, int * tokens,
                                                 size_t * io_n, char ** err);
ELIZA_API int eliza_inference_asr_stream_finish(EliAsrStream * stream, char * text, size_t cap, int * tokens,
                                                size_t * io_n, char ** err);
ELIZA_API void eliza_inference_asr_stream_close(EliAsrStream * stream);

/* ---- Voice activity --------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_vad_supported(void); /* 0 */
ELIZA_API EliVad * eliza_inference_vad_open(EliInferenceContext * ctx, int rate, char ** err);
ELIZA_API int eliza_inference_vad_process(EliVad * vad, const float * pcm, size_t n, float * probability, char ** err);
ELIZA_API int eliza_inference_vad_reset(EliVad * vad, char ** err);
ELIZA_API void eliza_inference_vad_close(EliVad * vad);

/* ---- Wake words ------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_wakeword_supported(void); /* 0 */
ELIZA_API EliWakeWord * eliza_inference_wakeword_open(EliInferenceContext * ctx, int rate, const char * head,
                                                      char ** err);
ELIZA_API int eliza_inference_wakeword_score(EliWakeWord * wake, const float * pcm, size_t n, float * probability,
                                             char ** err);
ELIZA_API int eliza_inference_wakeword_reset(EliWakeWord * wake, char ** err);
ELIZA_API void eliza_inference_wakeword_close(EliWakeWord * wake);

/* ---- Speakers --------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_speaker_supported(void); /* 0 */
ELIZA_API EliSpeaker * eliza_inference_speaker_open(EliInferenceContext * ctx, const char * path, char ** err);
ELIZA_API int eliza_inference_speaker_embed(EliSpeaker * speaker, const float * pcm, size_t n, float * embedding,
                                            char ** err);

/* Does nothing, because the caller owns the array passed to eliza_inference_speaker_embed(). */
ELIZA_API void eliza_inference_speaker_free(float * embedding);
ELIZA_API void eliza_inference_speaker_close(EliSpeaker * speaker);

ELIZA_API int eliza_inference_diariz_supported(void); /* 0 */
ELIZA_API EliDiariz * eliza_inference_diariz_open(EliInferenceContext * ctx, const char * path, char ** err);

/* Would write the speaker of each frame. *io_n is the capacity in labels, and would become their number. */
ELIZA_API int eliza_inference_diariz_segment(EliDiariz * diariz, const float * pcm, size_t n, int8_t * labels,
                                             size_t * io_n, char ** err);
ELIZA_API void eliza_inference_diariz_close(EliDiariz * diariz);

/* ---- Images ----------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_vision_supported(void); /* 0 */

/* Would describe the image in `bytes` (a PNG, JPEG or WebP file) and return the length of the text. */
ELIZA_API int eliza_inference_describe_image(EliInferenceContext * ctx, const unsigned char * bytes, size_t n,
                                             const char * mmproj, const char * prompt, char * text, size_t cap,
                                             char ** err);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_VOICE_H */
