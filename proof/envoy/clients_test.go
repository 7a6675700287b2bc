package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

func wrapText(text string) *structpb.Value_StringValue {
	return &structpb.Value_StringValue{StringValue: text}
}

// TestClients: the client of envoyproxy/ratelimit and grpcurl, which reads the service by reflection,
// work as they are.
func TestClients(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serve(t, `listen: { rls: { address: "127.0.0.1:0", envoy: `+rules+" } }\n")
	run := func(want string, program string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if text := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(text, want) {
			t.Errorf("%s %s: %v\n%s\nlacks %q", filepath.Base(program), args, err, out, want)
		}
	}
	client := build(t, dir, "github.com/envoyproxy/ratelimit/src/client_cmd")
	ask := []string{"-dial_string", address, "-domain", "shop", "-descriptors", "user=ann"}
	run("overall_code:OK", client, ask...)
	run("overall_code:OK", client, ask...)
	run("overall_code:OVER_LIMIT", client, ask...)
	grpcurl := build(t, dir, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	run("envoy.service.ratelimit.v3.RateLimitService", grpcurl, "-plaintext", address, "list")
	run(`"overallCode": "OVER_LIMIT"`, grpcurl, "-plaintext", "-d", `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`,
		address, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	run(`"status": "SERVING"`, grpcurl, "-plaintext", "-d", `{"service": "ratelimit"}`, address, "grpc.health.v1.Health/Check")
}
