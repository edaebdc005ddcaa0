-- The load of `balanza lab` as a script of wrk: pages, thinking, and what was measured as one line of JSON.
-- Arguments: path, number of pages, think time in milliseconds, seed.

local path, pages, think = "/", 1, 0

function init(args)
    path, pages, think = args[1], tonumber(args[2]), tonumber(args[3])
    math.randomseed(tonumber(args[4]))
    if think > 0 then
        -- wrk asks for a delay only if there is such a function, and does not count it as latency.
        function delay()
            return think
        end
    end
    if pages > 1 then
        function request()
            local page = path:gsub("{}", tostring(math.random(0, pages - 1)))
            return wrk.format("GET", page)
        end
    end
end

function done(summary, latency, requests)
    local percentiles = {}
    local function add(percentile)
        local format = "[%.1f,%d]"
        percentiles[#percentiles + 1] = format:format(percentile, latency:percentile(percentile))
    end
    -- Each of them is a walk over wrk's whole table: a few, not a thousand.
    if #latency > 0 then
        for percent = 1, 99 do
            add(percent)
        end
        for tenth = 1, 9 do
            add(99 + tenth / 10)
        end
    end
    local errors = summary.errors
    local numbers = {
        { "duration", summary.duration },
        { "requests", summary.requests },
        { "bytes", summary.bytes },
        { "connect", errors.connect },
        { "read", errors.read },
        { "write", errors.write },
        { "status", errors.status },
        { "timeout", errors.timeout },
        { "min", #latency > 0 and latency.min or 0 },
        { "max", #latency > 0 and latency.max or 0 },
        { "mean", #latency > 0 and latency.mean or 0 },
        { "sd", #latency > 0 and latency.stdev or 0 },
    }
    local fields = {}
    for _, number in ipairs(numbers) do
        -- A deviation of one time is not a number.
        local value = number[2] == number[2] and number[2] or 0
        fields[#fields + 1] = ('"%s":%.3f'):format(number[1], value)
    end
    io.write(("balanza {%s,\"percentiles\":[%s]}\n"):format(table.concat(fields, ","), table.concat(percentiles, ",")))
end
