package snake

import "testing"

func TestCase(t *testing.T) {
	for name, want := range map[string]string{"": "", "Rate": "rate", "DelayAfter": "delay_after", "MaxHold": "max_hold", "already_so": "already_so", "APIKeys": "api_keys", "JWT": "jwt", "MinRTT": "min_rtt", "TLSName": "tls_name"} {
		if got := Case(name); got != want {
			t.Errorf("Case(%q) = %q, want %q", name, got, want)
		}
	}
}
