// The authorization server oidc-provider: `oidc.mjs PORT CERTIFICATE KEY`, over HTTPS. Clients register themselves. Access
// tokens are for any resource: JWTs or, if it ends with `/opaque`, opaque. A client may have its tokens bound to its certificate.

import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";

const { Provider } = await import(`${process.env.CALLBOARD_PEERS}/node/node_modules/oidc-provider/lib/index.js`);

const [port, certificate, key] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });

const provider = new Provider(`https://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "k1", use: "sig", alg: "RS256" }] },
  scopes: ["callboard", "other", "hmcp:read"],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    introspection: { enabled: true, allowedPolicy: () => true },
    mTLS: {
      enabled: true,
      certificateBoundAccessTokens: true,
      getCertificate: (ctx) => ctx.req.socket.getPeerX509Certificate(),
    },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: "callboard other hmcp:read",
        audience: resource,
        accessTokenFormat: resource.endsWith("/opaque") ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
    revocation: { enabled: true },
  },
});

const options = {
  cert: readFileSync(certificate), key: readFileSync(key), requestCert: true, rejectUnauthorized: false,
};
createServer(options, provider.callback()).listen(Number(port), "127.0.0.1");
