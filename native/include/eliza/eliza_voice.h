/*
 * The voice and vision surface of elizaOS's ABI version 12, which this library exports and does not
 * serve.
 *
 * elizaOS's loader binds the functions of the ABI in families and leaves a whole family out when one
 * of its symbols is missing. Some voice functions belong to the family that text needs. So all of
 * them are here, and every one says the truth:
 *
 *   - the *_supported() functions return 0;
 *   - every other call returns ELIZA_ERR_NOT_IMPLEMENTED, whatever its arguments are, and *err, where
 *     `err` is not NULL, receives a text that names what is missing, to be freed with
 *     eliza_inference_free_string();
 *   - the functions that open something return NULL, so the functions that take what they open are
 *     never given a live handle; closing NULL, or anything else, does nothing;
 *   - of the results, counts and numbers become 0, pointers NULL and texts empty, where the caller
 *     gave room for them. Arrays of samples, labels and embeddings are left as they were.
 *
 * eliza_inference_mmap_acquire() and _evict() (eliza_inference.h) answer alike for voice regions.
 */
#ifndef ELIZA_VOICE_H
#define ELIZA_VOICE_H

#include <stddef.h>
#include <stdint.h>

#include "eliza_inference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Never created here; the types keep a caller's handles apart. */
typedef struct EliAsrStream EliAsrStream;
typedef struct EliVad EliVad;
typedef struct EliWakeWord EliWakeWord;
typedef struct EliSpeaker EliSpeaker;
typedef struct EliDiariz EliDiariz;

/* ---- Text to speech --------------------------------------------------------------------------- */

/* Would write samples at 24 kHz to `pcm`, room for `cap` of them, and return how many. */
ELIZA_API int eliza_inference_tts_synthesize(EliInferenceContext * ctx, const char * text, size_t len,
                                             const char * preset, float * pcm, size_t cap, char ** err);

ELIZA_API int eliza_inference_tts_stream_supported(void); /* 0 */

/* Never called. */
typedef int (*eliza_tts_chunk_cb)(const float * pcm, size_t n_samples, int is_final, void * user);
ELIZA_API int eliza_inference_tts_synthesize_stream(EliInferenceContext * ctx, const char * text, size_t len,
                                                    const char * preset, eliza_tts_chunk_cb on_chunk, void * user,
                                                    char ** err);

/* ELIZA_OK: to cancel where nothing runs is no error. */
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

/* Hertz of the loaded voice; here always ELIZA_ERR_NOT_IMPLEMENTED. */
ELIZA_API int eliza_inference_kokoro_sample_rate(EliInferenceContext * ctx);

/* ---- Speech recognition ----------------------------------------------------------------------- */

/* Would write what was said and return its length in bytes. */
ELIZA_API int eliza_inference_asr_transcribe(EliInferenceContext * ctx, const float * pcm, size_t n, int rate,
                                             char * text, size_t cap, char ** err);

ELIZA_API int eliza_inference_asr_timestamps_supported(void); /* 0 */

/* The same with a time span per word; *io_n is the room for words and becomes their number. */
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

/* Does nothing: the array of eliza_inference_speaker_embed() is the caller's own. */
ELIZA_API void eliza_inference_speaker_free(float * embedding);
ELIZA_API void eliza_inference_speaker_close(EliSpeaker * speaker);

ELIZA_API int eliza_inference_diariz_supported(void); /* 0 */
ELIZA_API EliDiariz * eliza_inference_diariz_open(EliInferenceContext * ctx, const char * path, char ** err);

/* Would write who speaks in each frame; *io_n is the room for labels and becomes their number. */
ELIZA_API int eliza_inference_diariz_segment(EliDiariz * diariz, const float * pcm, size_t n, int8_t * labels,
                                             size_t * io_n, char ** err);
ELIZA_API void eliza_inference_diariz_close(EliDiariz * diariz);

/* ---- Images ----------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_vision_supported(void); /* 0 */

/* Would describe the image in `bytes` (a PNG, JPEG or WebP file) and return the text's length. */
ELIZA_API int eliza_inference_describe_image(EliInferenceContext * ctx, const unsigned char * bytes, size_t n,
                                             const char * mmproj, const char * prompt, char * text, size_t cap,
                                             char ** err);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_VOICE_H */
