// What client.ts uses of Node.
declare const process: { env: Record<string, string | undefined> }
