// Calls the service at ADDRESS with a client whose types are generated from its OpenAPI document, and
// prints what it answers as JSON.
import createClient from 'openapi-fetch'
import type { paths, components } from './api.js'

type Decision = components['schemas']['Decision']

const service = createClient<paths>({ baseUrl: `http://${process.env.ADDRESS}` })
const ask = { limit: 'per-user', key: ['ts'] }

const took: Array<[number, boolean, number | undefined]> = []
for (let i = 0; i < 3; i++) {
  const { data, error, response } = await service.POST('/v1/take', { body: { ...ask, cost: 2 } })
  const decision = (data ?? error) as Decision // a refusal is a decision, too
  took.push([response.status, decision.allowed, decision.limits[0]?.remaining])
}

const reserved = await service.POST('/v1/reserve', { body: { limits: [{ limit: 'per-user', key: ['other'], cost: 4 }], hold_ms: 1000 } })
const id: string = reserved.data?.reservation ?? ''
const settled = await service.POST('/v1/settle', { body: { reservation: id, cost: 1 } })
const again = await service.POST('/v1/cancel', { body: { reservation: id } })
const batch = await service.POST('/v1/batch', { body: { calls: [{ op: 'peek', call: ask }, { op: 'take', call: { limit: 'none' } }] } })
const usage = await service.GET('/v1/usage', { params: { query: { key: ['other'], limit: 'per-user' } } })
const explained = await service.GET('/v1/explain', { params: { query: { limit: 'per-user', key: ['ts'] } } })
const charged = await service.POST('/v1/charge', { body: { charges: [{ name: 'own', key: 'a', limit: { token_bucket: { rate: '1/h', burst: 5 } }, cost: 2 }] } })

// @ts-expect-error: the types are those of the document, where the name of a limit is no number
await service.POST('/v1/peek', { body: { limit: 7 } })

console.log(JSON.stringify({
  took,
  settled: settled.data?.settled,
  again: again.error?.status,
  batch: batch.data?.results.map(r => r.status),
  used: usage.data?.usage[0]?.used,
  by: explained.data?.decided_by,
  charged: charged.data?.results[0]?.remaining,
}))
