// Lints the OpenAPI document at the path, and prints what is wrong, one line each.
import { createConfig, lint } from '@redocly/openapi-core'

const problems = await lint({ ref: process.argv[2], config: await createConfig({ extends: ['recommended'] }) })
for (const p of problems) console.log(`${p.severity}: ${p.ruleId}: ${p.message} at ${p.location[0]?.pointer}`)
process.exit(problems.length > 0 ? 1 : 0)
