/** Generates on a stream that another thread opened, until that thread cancels it. */
import { ElizaError, Stream } from "./client";
import { bind } from "./library";

declare const self: Worker;

self.onmessage = ({ data: handle }: MessageEvent<number>) => {
  const stream = new Stream(bind().symbols, handle);
  let reported = false;
  try {
    stream.generate(0, () => {
      if (!reported) postMessage("generating");
      reported = true;
    });
    postMessage({ status: 0, text: "" });
  } catch (error) {
    const known = error instanceof ElizaError;
    postMessage({ status: known ? error.status : 1, text: String(error) });
  }
};
