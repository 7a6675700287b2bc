// Calls the service at ADDRESS over mutual TLS with grpc-js. First a few requests, printed as JSON on one
// line; then 8 callers without an end, until standard input closes. The last line has what they got.
import fs from 'node:fs'
import grpc from '@grpc/grpc-js'
import loader from '@grpc/proto-loader'

const types = loader.loadSync('testdata/rls.proto', { enums: String, longs: Number, keepCase: true, defaults: true })
const { RateLimitService } = grpc.loadPackageDefinition(types).envoy.service.ratelimit.v3
const { ADDRESS, CA, CERT, KEY } = process.env
const connect = credentials => new RateLimitService(ADDRESS, credentials)
const ask = (client, key, hits, back) => new Promise((resolve, reject) => {
  const descriptor = { entries: [{ key: 'user', value: key }], is_negative_hits: !!back }
  if (hits !== undefined) descriptor.hits_addend = { value: hits }
  client.ShouldRateLimit({ domain: 'd', descriptors: [descriptor] }, { deadline: Date.now() + 120_000 },
    (err, response) => err ? reject(err) : resolve(response))
})
const text = r => `${r.overall_code} ${r.statuses[0].limit_remaining}/${r.statuses[0].current_limit.requests_per_unit}`
const refused = err => grpc.status[err.code]

const client = connect(grpc.credentials.createSsl(fs.readFileSync(CA), fs.readFileSync(KEY), fs.readFileSync(CERT)))
const first = []
for (const [hits, back] of [[], [2], [0], [9], [100, true], [1]]) first.push(text(await ask(client, 'node', hits, back)))
const deadline = { deadline: Date.now() + 3000 }
for (const credentials of [grpc.credentials.createInsecure(), grpc.credentials.createSsl(fs.readFileSync(CA))]) {
  const other = connect(credentials)
  first.push(await new Promise(resolve => other.ShouldRateLimit({ domain: 'd' }, deadline, err => resolve(err ? 'refused' : 'served'))))
  other.close()
}
console.log(JSON.stringify(first))

const counts = {}
let more = true
process.stdin.on('end', () => { more = false }).resume()
await Promise.all(Array.from({ length: 8 }, async (_, i) => {
  while (more) {
    const outcome = await ask(client, 'busy' + i).then(r => r.overall_code, refused)
    counts[outcome] = (counts[outcome] ?? 0) + 1
  }
}))
client.close()
console.log(JSON.stringify(counts))
