-- For wrk: a crowd, in which everybody is somebody else, and all want the item that ITEM names.
local item = os.getenv("ITEM") or "9"
local crowd

function init(args)
  math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 1000000)
  crowd = math.random(1000000000)
end

function request()
  crowd = crowd + 1
  return wrk.format("GET", "/buy?item=" .. item, { ["User-Id"] = "u" .. crowd })
end

function done(summary, latency, requests)
  print(string.format("asked %d times, got it %d times", summary.requests, summary.requests - summary.errors.status))
end
