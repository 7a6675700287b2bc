-- For wrk: counts the answers by their status, and prints what a test needs, one thing a line.
local threads = {}

function setup(thread)
	table.insert(threads, thread)
end

function init(args)
	statuses = {}
end

function response(status, headers, body)
	local name = tostring(status)
	statuses[name] = (statuses[name] or 0) + 1
end

function done(summary, latency, requests)
	local all = {}
	for _, thread in ipairs(threads) do
		for status, n in pairs(thread:get("statuses")) do
			all[status] = (all[status] or 0) + n
		end
	end
	for status, n in pairs(all) do
		print("count status-" .. status .. " " .. n)
	end
	local e = summary.errors
	print("count requests " .. summary.requests)
	print("count errors " .. e.connect + e.read + e.write + e.timeout)
	print("count slowest-us " .. string.format("%d", latency.max))
end
