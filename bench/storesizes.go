package main

import (
	"bufio"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mariadbSize is what the table and its indexes take, in whole pages.
func mariadbSize(ctx context.Context, address string) (size int64, err error) {
	db, err := stdsql.Open("mysql", "root@tcp("+address+")/weir")
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // it has only read
	if _, err := db.ExecContext(ctx, "ANALYZE TABLE weir_states"); err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables WHERE table_schema = 'weir' AND table_name = 'weir_states'").Scan(&size)
	return size, err
}

// memcachedSize is what all items take, with their heads.
func memcachedSize(ctx context.Context, address string) (size int64, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it has only read
	if _, err := fmt.Fprint(conn, "stats\r\n"); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		if text, found := strings.CutPrefix(lines.Text(), "STAT bytes "); found {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, errors.New("memcached does not say how many bytes its items take")
}

// etcdSize is what a member's file has in use.
func etcdSize(ctx context.Context, address string) (int64, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Context: ctx})
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // it has only read
	status, err := c.Status(ctx, address)
	if err != nil {
		return 0, err
	}
	return status.DbSizeInUse, nil
}
