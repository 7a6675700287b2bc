package policy

// A DecisionLog says which decisions the server logs. This package logs none itself.
type DecisionLog struct {
	On         bool
	Decisions  []string // allow, delay, deny; default: deny
	PerSecond  int      // at most so many refusals, and as many others; default: DefaultLoggedDecisions
	Keys       string   // KeysHashed or KeysShown; default: KeysHashed
	SecretFile string   // holds the secret that keys are hashed with; default: one of each process
}

// How the decision log shows keys.
const (
	KeysHashed = "hashed"
	KeysShown  = "shown"
)

// DefaultLoggedDecisions is the default of DecisionLog.PerSecond.
const DefaultLoggedDecisions = 10
