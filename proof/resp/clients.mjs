// Speaks to the server at ADDRESS with ioredis and node-redis, and prints what they reply as JSON. With
// CA, CERT and KEY (files) it uses TLS; CLIENT_USER and CLIENT_PASSWORD authenticate. With CALL it calls CL.THROTTLE
// until the standard input ends, and prints how many calls there were and what failed.
import { readFileSync } from 'node:fs'
import Redis from 'ioredis'
import { createClient } from 'redis'

const { ADDRESS, CA, CERT, KEY, CLIENT_USER: USER, CLIENT_PASSWORD: PASSWORD, CALL } = process.env
const [host, port] = ADDRESS.split(':')
const tls = CA && { ca: readFileSync(CA), cert: readFileSync(CERT), key: readFileSync(KEY) }
const out = {}

const ioredis = () => new Redis({ host, port: Number(port), tls, username: USER, password: PASSWORD })
const nodeRedis = async RESP => {
  const client = createClient({ socket: { host, port: Number(port), tls: Boolean(tls), ...tls }, username: USER, password: PASSWORD, RESP, name: 'test' })
  client.on('error', () => {}) // it connects again
  await client.connect()
  return client
}

if (CALL) await load()
else await once()
console.log(JSON.stringify(out))

async function once() {
  const io = ioredis()
  out.ioredis = [await io.call('CL.THROTTLE', 'io', 4, 1, 100), await io.ping()]
  const pipeline = io.pipeline()
  for (let i = 0; i < 6; i++) pipeline.call('CL.THROTTLE', 'io', 4, 1, 100)
  out.ioredisPipeline = (await pipeline.exec()).map(([err, reply]) => err ? err.message : reply[0])
  out.ioredisError = await io.call('CL.THROTTLE', 'io', 'x', 1, 100).catch(err => err.message)
  io.disconnect()
  for (const RESP of [2, 3]) {
    const client = await nodeRedis(RESP)
    out['redis' + RESP] = [await client.sendCommand(['CL.THROTTLE', 'node' + RESP, '4', '1', '100']), await client.ping()]
    const taken = await client.sendCommand(['WEIR.TAKE', 'api', '1', 'node' + RESP])
    out['take' + RESP] = Array.isArray(taken) ? taken[1] : (taken.allowed ?? taken.get?.('allowed'))
    await client.close()
  }
}

async function load() {
  let ends = false
  process.stdin.on('end', () => { ends = true }).resume()
  Object.assign(out, { ioredis: 0, failures: [] })
  const clients = [ioredis(), ioredis()]
  const caller = async (io, i) => {
    while (!ends) {
      await io.call('CL.THROTTLE', 'load' + i, 1000, 1000, 1).then(() => out.ioredis++, err => out.failures.push(err.message))
      await new Promise(done => setTimeout(done, i * 5)) // so that the connection is idle now and then
    }
  }
  await Promise.all([0, 1, 2, 3].map(i => caller(clients[i % 2], i)))
  clients.forEach(io => io.disconnect())
}
