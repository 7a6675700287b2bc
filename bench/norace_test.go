//go:build !race

package main

const heavy = 1
