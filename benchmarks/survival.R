# Fits by R's survival::clogit, for survival.py: after the word "ready", one fit for each line of input.
suppressPackageStartupMessages(library(survival))

folder <- commandArgs(trailingOnly = TRUE)[1]
numbers <- function(name) {
  path <- file.path(folder, name)
  readBin(path, "double", file.size(path) / 8)
}
case <- numbers("cases")
covariates <- matrix(numbers("covariates"), nrow = length(case), byrow = TRUE)
cat("ready\n")
flush(stdout())
input <- file("stdin", "r")
while (length(readLines(input, 1)) > 0) {
  fit <- clogit(case ~ covariates, method = "exact")
  cat(format(coef(fit), digits = 17), "\n")
  flush(stdout())
}
