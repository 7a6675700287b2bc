package faces

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirhttp"
)

var binary string

func TestMain(m *testing.M) {
	code := servers.Main(m, &binary)
	os.RemoveAll(caddyDir)
	os.Exit(code)
}

// caddyBinary is Caddy with weircaddy, built in caddyDir by the first test that needs it.
var (
	caddyDir    string
	caddyBinary = sync.OnceValues(func() (path string, err error) {
		if caddyDir, err = os.MkdirTemp("", "weircaddy"); err != nil {
			return "", err
		}
		return servers.BuildCaddy(context.Background(), caddyDir)
	})
)

// A service is one way to ask for the limit. Those of one process share the counts of an outage.
type service struct {
	name, process string
	take          func(ctx context.Context, key string, cost int64) (allowed bool, err error)
}

// A world is a weir serve with all services, and a client for each.
type world struct {
	*servers.Reloadable
	t        *testing.T
	policy   string
	client   *http.Client
	redis    *redis.Client
	envoy    pb.RateLimitServiceClient
	services []service
}

// start serves a limit "api" with these parameters: in memory, or in a Redis with these settings. With a
// Redis, the middleware in this process and a Caddy are services, too.
func start(t *testing.T, parameters, redisAddress, storeSettings string) *world {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	stores, stored := "", ""
	if redisAddress != "" {
		stores, stored = fmt.Sprintf("stores: { shared: { url: \"redis://%s\"%s } }\n", redisAddress, storeSettings), ", store: shared"
	}
	limit := stores + fmt.Sprintf("limits: { api: { key: header.user, cost: header.x-cost, token_bucket: { %s }%s } }\n", parameters, stored)
	w := &world{t: t, policy: "listen: { gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\", rls: { address: \"127.0.0.1:0\" } }\n" +
		"trusted_proxies: [127.0.0.1]\n" + limit + fmt.Sprintf("upstreams: { app: { url: %q } }\nroutes: [{ match: /, upstream: app, limits: [api] }]\n", upstream.URL)}
	w.Reloadable = servers.PolicyIn(t, t.TempDir(), w.policy).Start(t, binary)
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: servers.Patience}
	t.Cleanup(w.client.CloseIdleConnections)
	w.redis = redis.NewClient(&redis.Options{Addr: w.ByFace["resp"][0], Protocol: 3, PoolSize: 32, ReadTimeout: servers.Patience})
	t.Cleanup(func() { w.redis.Close() })
	conn, err := grpc.NewClient(w.ByFace["rls"][0], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.envoy = pb.NewRateLimitServiceClient(conn)
	w.services = []service{{"gateway", "serve", w.gateway}, {"rls", "serve", w.rls}, {"resp", "serve", w.resp}, {"json", "serve", w.json}, {"hook", "serve", w.hook}}
	if redisAddress != "" {
		w.services = append(w.services, service{"middleware", "test", w.middleware(limit + "routes: [{ match: /, limits: [api] }]\n")},
			service{"caddy", "caddy", w.caddy(parameters, redisAddress, storeSettings)})
	}
	return w
}

// pause lets other callers have the processor.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
	}
}

// admitted reads the status of an HTTP response.
func admitted(resp *http.Response, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusTooManyRequests:
		return false, nil
	case resp.StatusCode >= 300:
		return false, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return true, nil
}

// get makes a request of a client with a key and a cost.
func get(ctx context.Context, url, key string, cost int64) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err) // a wrong URL of this test
	}
	r.Header.Set("User", key)
	r.Header.Set("X-Cost", strconv.FormatInt(cost, 10))
	return r
}

func (w *world) gateway(ctx context.Context, key string, cost int64) (bool, error) {
	return admitted(w.client.Do(get(ctx, "http://"+w.Gateway+"/", key, cost)))
}

func (w *world) hook(ctx context.Context, key string, cost int64) (bool, error) {
	r := get(ctx, "http://"+w.ByFace["http"][0]+"/auth", key, cost)
	for name, value := range map[string]string{"Method": "GET", "Host": "shop.example", "Uri": "/", "For": "192.0.2.1", "Proto": "http"} {
		r.Header.Set("X-Forwarded-"+name, value)
	}
	return admitted(w.client.Do(r))
}

func (w *world) rls(ctx context.Context, key string, cost int64) (bool, error) {
	out, err := w.descriptor(ctx, key, cost)
	return out.GetOverallCode() == pb.RateLimitResponse_OK, err
}

func (w *world) descriptor(ctx context.Context, key string, hits int64) (*pb.RateLimitResponse, error) {
	return w.envoy.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "any", Descriptors: []*descriptor.RateLimitDescriptor{{
		Entries:    []*descriptor.RateLimitDescriptor_Entry{{Key: "limit", Value: "api"}, {Key: "user", Value: key}},
		HitsAddend: wrapperspb.UInt64(uint64(hits)),
	}}})
}

// command sends a command of limits, and returns the fields of its reply.
func (w *world) command(ctx context.Context, words ...any) (map[any]any, error) {
	reply, err := w.redis.Do(ctx, words...).Result()
	fields, _ := reply.(map[any]any)
	return fields, err
}

func (w *world) resp(ctx context.Context, key string, cost int64) (bool, error) {
	fields, err := w.command(ctx, "WEIR.TAKE", "api", 1, key, "COST", cost)
	return fields["allowed"] == int64(1), err
}

// answer is what the JSON API answers.
type answer struct {
	Allowed     bool
	Reservation string
	Limits      []state
}

type state struct {
	Capacity  int64
	Remaining int64
	Source    string
}

// peek looks at the limit for a key.
func (w *world) peek(key string) state {
	w.t.Helper()
	a, err := w.post(w.t.Context(), "peek", map[string]any{"limit": "api", "key": []string{key}})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Limits[0]
}

// post calls an operation of the JSON API. With its Idempotency-Key, Go's client repeats it when the
// server has closed the connection.
func (w *world) post(ctx context.Context, operation string, body map[string]any) (answer, error) {
	return w.postOnce(ctx, operation, rand.Text(), body)
}

// postOnce is post with an Idempotency-Key.
func (w *world) postOnce(ctx context.Context, operation, once string, body map[string]any) (a answer, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.ByFace["http"][0]+"/v1/"+operation+"?status=200", bytes.NewReader(data))
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", once)
	resp, err := w.client.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, data)
	}
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(data, &a)
}

func (w *world) json(ctx context.Context, key string, cost int64) (bool, error) {
	a, err := w.post(ctx, "take", map[string]any{"limit": "api", "key": []string{key}, "cost": cost})
	return a.Allowed, err
}

// middleware opens a policy in this process, with a store of its own.
func (w *world) middleware(policy string) func(context.Context, string, int64) (bool, error) {
	t := w.t
	t.Helper()
	file, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	p, err := active.New(t.Context(), file, active.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	limited, err := weirhttp.Policy(p.Engine())
	if err != nil {
		t.Fatal(err)
	}
	handler := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func(ctx context.Context, key string, cost int64) (bool, error) {
		r, out := get(ctx, "http://shop.example/", key, cost), httptest.NewRecorder()
		r.RemoteAddr = "192.0.2.1:1234"
		handler.ServeHTTP(out, r)
		return admitted(out.Result(), nil)
	}
}

// caddy starts a Caddy with the limit in its Caddyfile.
func (w *world) caddy(parameters, redisAddress, storeSettings string) func(context.Context, string, int64) (bool, error) {
	w.t.Helper()
	path, err := caddyBinary()
	if err != nil {
		w.t.Fatal(err)
	}
	lines := func(settings string) string { // of a Caddyfile, for settings of a policy
		return strings.NewReplacer(", ", "\n", ": ", " ").Replace(strings.TrimPrefix(settings, ", ")) + "\n"
	}
	options := "weir {\nstore shared redis://" + redisAddress + " {\n" + lines(storeSettings) + "}\n}"
	site := "weir {\nlimit api {\nkey {header.User}\ncost {header.X-Cost}\ntoken_bucket {\n" + lines(parameters) + "}\nstore shared\n}\n}\nrespond ok"
	ctx, cancel := context.WithTimeout(w.t.Context(), servers.Patience)
	defer cancel()
	c, err := servers.WeirCaddy(ctx, path, w.t.TempDir(), options, site)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	return func(ctx context.Context, key string, cost int64) (bool, error) {
		return admitted(w.client.Do(get(ctx, "http://"+c.Addr+"/", key, cost)))
	}
}

// left asks each service that can tell how much of the limit a key has left. All must say the same.
func (w *world) left(key string) int64 {
	w.t.Helper()
	left := w.peek(key).Remaining
	fields, err := w.command(w.t.Context(), "WEIR.PEEK", "api", 1, key)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.descriptor(w.t.Context(), key, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if fields["remaining"] != left || int64(out.Statuses[0].LimitRemaining) != left {
		w.t.Errorf("of %q, %d are left over JSON, %v over the Redis protocol, and %d over Envoy's", key, left, fields["remaining"], out.Statuses[0].LimitRemaining)
	}
	return left
}
