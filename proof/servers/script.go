package servers

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
)

// Start runs a program that SIGTERM ends, and that ends its own children. It waits until the
// program is ready.
func Start(ctx context.Context, cmd *exec.Cmd, ready func(output string) bool) (*Process, error) {
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		return nil, err
	}
	return p, p.until(ctx, func(context.Context) error {
		if !ready(p.Output()) {
			return fmt.Errorf("%s is not ready yet", p.Name)
		}
		return nil
	})
}
