"""What runs on the Redis server itself, so that no client can leave the books of a store wrong.

KEYS[1] is the prefix of one kind of row. Behind it: `row:KEY` the value, `tenant:GROUP` the keys of a tenant's rows,
`age` the keys by the microsecond of their writing, `book` the size and the tenant of each key, and the sum under
`total`. Where the server itself dropped one of these, books are begun anew: rows that are in none expire by themselves.
Whoever calls a script calls it again as long as it says that it dropped `STEP` rows.
"""

STEP = 1_000
"""A script drops so many rows at most; that takes some milliseconds."""

_STEP = f"local step = {STEP}\n"

_COMMON = """
local rows, tenants = KEYS[1] .. 'row:', KEYS[1] .. 'tenant:'
local age, book = KEYS[1] .. 'age', KEYS[1] .. 'book'

local function total()
    return tonumber(redis.call('HGET', book, 'total') or '0')
end

local function forget(key)
    local entry = redis.call('HGET', book, key)
    redis.call('ZREM', age, key)
    if entry then
        local size, tenant = string.match(entry, '(%d+) (%x*)')
        redis.call('HDEL', book, key)
        redis.call('HINCRBY', book, 'total', -tonumber(size))
        redis.call('SREM', tenants .. tenant, key)
    end
end

local function drop(key)
    redis.call('UNLINK', rows .. key)
    forget(key)
end
"""

PUT = (
    _STEP
    + _COMMON
    + """
local limit, retention = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

if redis.call('ZCARD', age) ~= math.max(0, redis.call('HLEN', book) - 1) then
    redis.call('UNLINK', age, book)
end

for i = 3, #ARGV, 4 do
    local key, tenant, size, value = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    redis.call('SET', rows .. key, value, 'PX', retention) -- the first write: a server without memory refuses it
    forget(key)
    redis.call('ZADD', age, now + i, key)
    redis.call('HSET', book, key, size .. ' ' .. tenant)
    redis.call('HINCRBY', book, 'total', size)
    redis.call('SADD', tenants .. tenant, key)
    redis.call('PEXPIRE', tenants .. tenant, retention)
end
if #ARGV > 2 then
    redis.call('PEXPIRE', age, retention)
    redis.call('PEXPIRE', book, retention)
end

local old = redis.call('ZRANGEBYSCORE', age, '-inf', now - 1000 * retention, 'LIMIT', 0, step)
local dropped = #old
for _, key in ipairs(old) do
    drop(key)
end
while dropped < step and total() > limit do
    drop(redis.call('ZRANGE', age, 0, 0)[1])
    dropped = dropped + 1
end
return {total(), dropped}
"""
)

DROP = (
    _COMMON
    + """
for _, key in ipairs(ARGV) do
    drop(key)
end
return total()
"""
)

DELETE = (
    _STEP
    + """
local of_first, left = 0, step
for number, prefix in ipairs(KEYS) do
    local rows, tenant = prefix .. 'row:', prefix .. 'tenant:' .. ARGV[1]
    local age, book = prefix .. 'age', prefix .. 'book'
    local some = left > 0 and redis.call('SPOP', tenant, left) or {}
    left = left - #some
    for _, key in ipairs(some) do
        local entry = redis.call('HGET', book, key)
        local there = redis.call('UNLINK', rows .. key)
        redis.call('ZREM', age, key)
        if entry then
            redis.call('HDEL', book, key)
            redis.call('HINCRBY', book, 'total', -tonumber(string.match(entry, '%d+')))
        end
        if number == 1 then
            of_first = of_first + there
        end
    end
end
return {of_first, step - left}
"""
)

CHECK = (
    _COMMON
    + """
local held = 0
for _, key in ipairs(redis.call('ZRANGE', age, 0, -1)) do
    held = held + tonumber(string.match(redis.call('HGET', book, key) or '0', '%d+'))
end
return {held, total()}
"""
)
