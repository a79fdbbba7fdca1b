/** Runs `eliza-ffi serve` with the embedded model. */
import { resolve } from "node:path";
import { root } from "./library";

export interface Server {
  /** The server's address without a slash at the end. */
  url: string;
  stop(): Promise<void>;
}

/** Starts a server on a free port, with the Python of the checkout or the one in `PYTHON`. */
export async function serve(): Promise<Server> {
  const python = process.env.PYTHON ?? resolve(root, ".venv/bin/python");
  const server = Bun.spawn([python, "-m", "eliza_ffi", "serve", "--port", "0"], {
    cwd: root,
    stdout: "pipe",
    stderr: "inherit",
  });
  let said = "";
  const decoder = new TextDecoder();
  const output = server.stdout.getReader();
  while (!said.includes("\n")) {
    const { value, done } = await output.read();
    if (done) throw new Error(`the server ended before it listened: ${said}`);
    said += decoder.decode(value, { stream: true });
  }
  const url = / is served at (http:\S+?)\/?\s/.exec(said)?.[1];
  if (url === undefined) throw new Error(`expected the server's address, got: ${said}`);
  return {
    url,
    async stop() {
      server.kill();
      await server.exited;
    },
  };
}
