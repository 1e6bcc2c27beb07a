// Prints the JSON schema of VS Code's file of MCP servers. The argument is the folder of @codingame/monaco-vscode-api.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const file = join(process.argv[2], "vscode/src/vs/workbench/contrib/mcp/common/mcpConfiguration.js");
const { mcpServerSchema } = await import(pathToFileURL(file).href);
console.log(JSON.stringify(mcpServerSchema));
