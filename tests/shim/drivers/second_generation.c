/* A driver for Ascend 950: the v1 names answer that they are not supported. */
int dcmi_init(void)
{
    return -8255;
}

int dcmiv2_init(void)
{
    return 0;
}
